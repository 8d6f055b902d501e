/* Kernel of the text room.
 *
 * scan_lines: take the text (and the id) out of JSON lines, as UTF-8, without making objects.
 *
 * The scanner accepts or declines. It accepts a line only if it has understood all of it: a blank
 * line, or one object, strict JSON, strict UTF-8, text and id there once, no NUL, no mark at the
 * start of the text. At the first line it is not sure of it stops, and Python looks at that line:
 * what is wrong with it, or whether anything is, is said in one place only. The reference is
 * `parse_line` in text/sources/jsonl.py.
 */
#include "native.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define STRIDE 64 /* what is read and written at once */
#define MAX_DEPTH 32
#define MAX_DIGITS 18 /* of an integer that fits 64 bits whatever its digits are */

typedef unsigned char byte;

typedef struct {
    const byte *at, *end; /* what is read; nothing at or after `end` is */
    byte *out;            /* where the next kept byte goes: never ahead of what was read */
} scanner;

static int is_space(byte c) { return c == ' ' || c == '\t' || c == '\r'; }

static void skip_space(scanner *s) {
    while (s->at < s->end && is_space(*s->at)) s->at++;
}

static int take(scanner *s, byte c) {
    if (s->at >= s->end || *s->at != c) return 0;
    s->at++;
    return 1;
}

/* Return how many bytes of well-formed UTF-8 the character at `at` has, or 0. */
static int character_bytes(const byte *at, const byte *end) {
    byte first = at[0];
    int count = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || end - at < count) return 0;
    byte low = 0x80, high = 0xBF; /* of the second byte: no long forms, no surrogates, <= 10FFFF */
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
    if (at[1] < low || at[1] > high) return 0;
    for (int i = 2; i < count; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    return count;
}

static int32_t four_hex(const byte *at, const byte *end) {
    if (end - at < 4) return -1;
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        byte c = at[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

static byte *put_character(byte *out, int32_t code) {
    if (code < 0x80) {
        *out++ = (byte)code;
    } else if (code < 0x800) {
        *out++ = (byte)(0xC0 | code >> 6);
        *out++ = (byte)(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *out++ = (byte)(0xE0 | code >> 12);
        *out++ = (byte)(0x80 | (code >> 6 & 0x3F));
        *out++ = (byte)(0x80 | (code & 0x3F));
    } else {
        *out++ = (byte)(0xF0 | code >> 18);
        *out++ = (byte)(0x80 | (code >> 12 & 0x3F));
        *out++ = (byte)(0x80 | (code >> 6 & 0x3F));
        *out++ = (byte)(0x80 | (code & 0x3F));
    }
    return out;
}

/* What the letter behind a backslash stands for; 0 where it is not one of these. */
static const byte escapes[256] = {
    ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['n'] = '\n',
    ['t'] = '\t', ['r'] = '\r',  ['b'] = '\b', ['f'] = '\f',
};

/* Take the escape whose backslash was just read. */
static int take_escape(scanner *s) {
    if (s->at >= s->end) return 0;
    byte c = *s->at++;
    if (escapes[c]) {
        *s->out++ = escapes[c];
        return 1;
    }
    if (c != 'u') return 0;
    int32_t code = four_hex(s->at, s->end);
    if (code <= 0) return 0; /* NUL: Python counts it */
    s->at += 4;
    if (code >= 0xD800 && code < 0xE000) {
        if (code >= 0xDC00 || s->end - s->at < 6 || s->at[0] != '\\' || s->at[1] != 'u') return 0;
        int32_t low = four_hex(s->at + 2, s->end);
        if (low < 0xDC00 || low >= 0xE000) return 0;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        s->at += 6;
    }
    s->out = put_character(s->out, code);
    return 1;
}

#if defined(__SSE2__)
/* Return a bit for each of 16 bytes that is a quote, a backslash, a control or a high byte. */
static uint64_t specials(const byte *at) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)at);
    /* Compared as signed numbers, controls and high bytes are both less than a blank. */
    __m128i special = _mm_cmplt_epi8(bytes, _mm_set1_epi8(' '));
    special = _mm_or_si128(special, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')));
    special = _mm_or_si128(special, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
    return (unsigned)_mm_movemask_epi8(special);
}

/* Copy whole strides as copy_plain does, while there is one more behind them, and an escape. */
static void copy_strides(scanner *s) {
    const byte *at = s->at;
    byte *out = s->out;
    while (s->end - at > 2 * STRIDE) {
        uint64_t found = specials(at) | specials(at + 16) << 16 | specials(at + 32) << 32 |
                         specials(at + 48) << 48;
        int start = 0;
        while (found) {
            int stop = __builtin_ctzll(found);
            byte letter = escapes[at[stop + 1]];
            /* A whole stride, whatever the length: what is too much is written over. */
            memcpy(out, at + start, STRIDE);
            out += stop - start;
            if (at[stop] != '\\' || !letter) {
                s->at = at + stop;
                s->out = out;
                return;
            }
            *out++ = letter;
            start = stop + 2;
            found = start < STRIDE ? found >> start << start : 0;
        }
        memcpy(out, at + start, STRIDE);
        int next = start < STRIDE ? STRIDE : start;
        out += next - start;
        at += next;
    }
    s->at = at;
    s->out = out;
}
#endif

/* Copy the plain ASCII that lies ahead, with its escapes of one letter, up to anything else. */
static void copy_plain(scanner *s) {
#if defined(__SSE2__)
    copy_strides(s);
#endif
    const byte *at = s->at;
    byte *out = s->out;
    while (at < s->end && *at >= ' ' && *at < 0x80 && *at != '"' && *at != '\\') *out++ = *at++;
    s->at = at;
    s->out = out;
}

/* Take the characters beyond ASCII that lie ahead; a blank between them is not worth a stride. */
static int take_characters(scanner *s) {
    const byte *at = s->at;
    byte *out = s->out;
    do {
        int count = character_bytes(at, s->end);
        if (!count) return 0;
        for (int i = 0; i < count; i++) *out++ = *at++;
        if (s->end - at > 1 && at[0] == ' ' && at[1] >= 0x80) *out++ = *at++;
    } while (at < s->end && *at >= 0x80);
    s->at = at;
    s->out = out;
    return 1;
}

/* Take a string, its opening quote included; what it says is put to `out`. */
static int take_string(scanner *s) {
    if (!take(s, '"')) return 0;
    for (;;) {
        copy_plain(s);
        if (s->at >= s->end) return 0;
        byte c = *s->at;
        if (c == '"') {
            s->at++;
            return 1;
        }
        if (c == '\\') {
            s->at++;
            if (!take_escape(s)) return 0;
        } else if (c < ' ') {
            return 0;
        } else if (!take_characters(s)) {
            return 0;
        }
    }
}

static Py_ssize_t take_digits(scanner *s) {
    const byte *start = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9') s->at++;
    return s->at - start;
}

/* Take an integer that fits 64 bits; no zeros in front of others. */
static int take_integer(scanner *s) {
    (void)take(s, '-');
    const byte *start = s->at;
    Py_ssize_t count = take_digits(s);
    return count == 1 || (count > 1 && count <= MAX_DIGITS && *start != '0');
}

static int take_word(scanner *s, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(s->end - s->at) < length || memcmp(s->at, word, length)) return 0;
    s->at += length;
    return 1;
}

/* Pass over any value that is surely JSON; exponents and the like are left to Python. */
static int pass_value(scanner *s, int depth) {
    byte *kept = s->out;
    if (depth > MAX_DEPTH || s->at >= s->end) return 0;
    byte first = *s->at;
    int good;
    if (first == '"') {
        good = take_string(s);
    } else if (first == '{' || first == '[') {
        byte last = first == '{' ? '}' : ']';
        s->at++;
        skip_space(s);
        if (take(s, last)) return 1;
        do {
            skip_space(s);
            if (first == '{') {
                if (!take_string(s)) return 0;
                s->out = kept;
                skip_space(s);
                if (!take(s, ':')) return 0;
                skip_space(s);
            }
            if (!pass_value(s, depth + 1)) return 0;
            skip_space(s);
        } while (take(s, ','));
        good = take(s, last);
    } else if (first == '-' || (first >= '0' && first <= '9')) {
        good = take_integer(s);
        if (good && take(s, '.')) good = take_digits(s) > 0;
        /* What follows must be an end: "1e5" is a number too, but not one for here. */
        good = good && s->at < s->end && *s->at != 'e' && *s->at != 'E';
    } else {
        good = take_word(s, "true") || take_word(s, "false") || take_word(s, "null");
    }
    s->out = kept;
    return good;
}

typedef struct {
    const char *bytes; /* NULL: there is no such key */
    Py_ssize_t length;
} key;

static int equals(const byte *start, const byte *stop, key name) {
    return stop - start == name.length && !memcmp(start, name.bytes, (size_t)name.length);
}

/* One row of the table that is filled: where text and id lie in `out`, where the line began, and
 * how many lines came before it. */
typedef struct {
    int64_t text_start, text_stop, id_start, id_stop, line_start, line_number;
} found;

static int has_bad_start(const byte *text, const byte *stop) {
    return stop - text >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3);
}

/* Take one member of the object into `row`; keys are compared as they are spelled. */
static int take_member(scanner *s, key text, key id, const byte *base, found *row) {
    byte *kept = s->out;
    const byte *start = s->at + 1;
    if (!take_string(s)) return 0;
    const byte *stop = s->at - 1;
    if (s->out - kept != stop - start) return 0; /* an escape: it might spell one of the names */
    s->out = kept;
    skip_space(s);
    if (!take(s, ':')) return 0;
    skip_space(s);
    if (equals(start, stop, text)) {
        if (row->text_start >= 0 || !take_string(s)) return 0;
        if (has_bad_start(kept, s->out)) return 0;
        row->text_start = kept - base;
        row->text_stop = s->out - base;
        return 1;
    }
    if (id.bytes == NULL || !equals(start, stop, id)) return pass_value(s, 0);
    if (row->id_stop >= 0 || s->at >= s->end) return 0; /* an id came before, or a null */
    if (take_word(s, "null")) {
        row->id_stop = 0;
        return 1;
    }
    if (*s->at == '"') {
        if (!take_string(s)) return 0;
    } else {
        /* "-0" is 0, and 1.5 is no id: whatever is not an integer as Python spells it. */
        const byte *number = s->at;
        if (!take_integer(s) || (number[0] == '-' && number[1] == '0')) return 0;
        memcpy(s->out, number, (size_t)(s->at - number));
        s->out += s->at - number;
    }
    row->id_start = kept - base;
    row->id_stop = s->out - base;
    return 1;
}

/* Take one line with its newline, which only the last line of all may lack; a blank line has no
 * text. */
static int take_line(scanner *s, key text, key id, const byte *base, found *row) {
    row->text_start = row->id_start = row->id_stop = -1;
    skip_space(s);
    if (s->at == s->end || take(s, '\n')) return 1;
    if (!take(s, '{')) return 0;
    do {
        skip_space(s);
        if (!take_member(s, text, id, base, row)) return 0;
        skip_space(s);
    } while (take(s, ','));
    if (!take(s, '}') || row->text_start < 0) return 0;
    skip_space(s);
    return s->at == s->end || take(s, '\n');
}

PyObject *tokenreel_scan_lines(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer data, out, table;
    Py_ssize_t start, max_bytes;
    key text, id;
    if (!PyArg_ParseTuple(args, "y*ny#z#nw*w*", &data, &start, &text.bytes, &text.length, &id.bytes,
                          &id.length, &max_bytes, &out, &table))
        return NULL;
    PyObject *result = NULL;
    Py_ssize_t capacity = table.len / (Py_ssize_t)sizeof(found), count = 0, lines = 0;
    if (start < 0 || start > data.len || out.len < data.len - start) {
        PyErr_SetString(PyExc_ValueError, "scan_lines: buffer sizes do not fit");
        goto done;
    }
    const byte *base = data.buf, *line = base + start;
    Py_BEGIN_ALLOW_THREADS;
    scanner s = {line, base + data.len, out.buf};
    found *rows = table.buf;
    while (count < capacity && s.at < s.end) {
        byte *kept = s.out;
        found row;
        if (!take_line(&s, text, id, out.buf, &row) || s.at - line > max_bytes) {
            s.out = kept;
            break;
        }
        row.line_start = line - base;
        row.line_number = lines++;
        if (row.text_start >= 0) rows[count++] = row;
        line = s.at;
    }
    Py_END_ALLOW_THREADS;
    result = Py_BuildValue("nnn", count, lines, (Py_ssize_t)(line - base));
done:
    PyBuffer_Release(&data);
    PyBuffer_Release(&out);
    PyBuffer_Release(&table);
    return result;
}
