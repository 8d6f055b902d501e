/* Rows from pieces: cast, shift, mask, segment, number, pad, in one pass.
 *
 * The reference, and the explanation, is feed/gather.py; the kernels are gather.c and assemble.c.
 */
#include "native.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

int tokenreel_allocate_rows(tokenreel_rows *rows, Py_ssize_t num_rows) {
    *rows = (tokenreel_rows){.num_rows = num_rows};
    rows->row_offsets = malloc((size_t)(num_rows + 1) * sizeof *rows->row_offsets);
    rows->piece_room = 2 * num_rows + 64; /* more is found when it is needed */
    rows->pieces = malloc((size_t)rows->piece_room * sizeof *rows->pieces);
    if (!rows->row_offsets || !rows->pieces) return 0;
    rows->row_offsets[0] = 0;
    return 1;
}

void tokenreel_free_rows(tokenreel_rows *rows) {
    free(rows->row_offsets);
    free(rows->pieces);
    free(rows->spans);
    free(rows->missing);
}

static void *grown(void *old, Py_ssize_t *room, size_t size) {
    Py_ssize_t more = *room ? *room * 2 : 256;
    void *memory = realloc(old, (size_t)more * size);
    if (memory) *room = more;
    return memory;
}

int tokenreel_add_piece(tokenreel_rows *rows, tokenreel_piece piece) {
    if (rows->num_pieces == rows->piece_room) {
        void *memory = grown(rows->pieces, &rows->piece_room, sizeof *rows->pieces);
        if (!memory) return 0;
        rows->pieces = memory;
    }
    rows->pieces[rows->num_pieces++] = piece;
    return 1;
}

int tokenreel_add_span(tokenreel_rows *rows, tokenreel_span span) {
    if (rows->num_spans == rows->span_room) {
        void *memory = grown(rows->spans, &rows->span_room, sizeof *rows->spans);
        if (!memory) return 0;
        rows->spans = memory;
    }
    rows->spans[rows->num_spans++] = span;
    return 1;
}

int tokenreel_add_missing(tokenreel_rows *rows, int64_t shard) {
    if (rows->num_missing == rows->missing_room) {
        void *memory = grown(rows->missing, &rows->missing_room, sizeof *rows->missing);
        if (!memory) return 0;
        rows->missing = memory;
    }
    rows->missing[rows->num_missing++] = shard;
    return 1;
}

#define WIDEN(NAME, TYPE)                                                                      \
    VECTORISED static void NAME(const void *from, int64_t *restrict to,                        \
                                int64_t *restrict too, Py_ssize_t count) {                     \
        const TYPE *source = from;                                                             \
        if (too)                                                                               \
            for (Py_ssize_t i = 0; i < count; i++) to[i] = too[i] = (int64_t)source[i];        \
        else                                                                                   \
            for (Py_ssize_t i = 0; i < count; i++) to[i] = (int64_t)source[i];                 \
    }

WIDEN(widen_u8, uint8_t)
WIDEN(widen_u16, uint16_t)
WIDEN(widen_u32, uint32_t)
WIDEN(widen_i8, int8_t)
WIDEN(widen_i16, int16_t)
WIDEN(widen_i32, int32_t)
WIDEN(widen_i64, int64_t)

/* Tokens of a kind into one array, or two at once. */
static void widen(int kind, const void *from, int64_t *to, int64_t *too, Py_ssize_t count) {
    switch (kind) {
    case 1: widen_u8(from, to, too, count); break;
    case 2: widen_u16(from, to, too, count); break;
    case 4: widen_u32(from, to, too, count); break;
    case -1: widen_i8(from, to, too, count); break;
    case -2: widen_i16(from, to, too, count); break;
    case -4: widen_i32(from, to, too, count); break;
    default: widen_i64(from, to, too, count);
    }
}

VECTORISED static void put_weight(float *to, float weight, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) to[i] = weight;
}

VECTORISED static void put_segment(int32_t *to, int32_t segment, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) to[i] = segment;
}

VECTORISED static void put_positions(int32_t *to, int32_t first, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) to[i] = first + (int32_t)i;
}

VECTORISED static void repeat(int64_t *to, int64_t id, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) to[i] = id;
}

#define STORED(NAME, TYPE)                                                                     \
    VECTORISED static void NAME(const void *stored, int64_t *labels, float *weights,           \
                                Py_ssize_t count) {                                            \
        const TYPE *from = stored;                                                             \
        for (Py_ssize_t i = 0; i < count; i++) {                                               \
            labels[i] = from[i] > 0 ? labels[i] : TOKENREEL_IGNORED;                                     \
            if (weights) weights[i] = from[i] > 0 ? (float)from[i] : 0.0f;                     \
        }                                                                                      \
    }

STORED(weigh_u8, uint8_t)
STORED(weigh_f32, float)

VECTORISED static void show_u8(float *to, const uint8_t *from, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) to[i] = from[i];
}

/* A row that is being filled: where its slots are and how far it has come. */
typedef struct {
    int64_t *inputs, *labels;
    int32_t *segments, *positions;
    float *weights;
    uint8_t *mask;
    int64_t width, at; /* slots of the row; stream slot of the current piece's first token */
    int32_t segment, position;
} lane;

/* Tokens start to stop of a piece into one array, or two: `to` and `too` are for the first of them. */
static void put_tokens(const tokenreel_piece *p, int64_t *to, int64_t *too, int64_t start, int64_t stop) {
    const char *from = p->tokens + start * tokenreel_size_of(p->kind);
    if (start < stop) widen(p->kind, from, to, too, stop - start);
}

static void ignore(const lane *l, int64_t slot, int64_t count) {
    repeat(l->labels + slot, TOKENREEL_IGNORED, count);
    if (l->weights) put_weight(l->weights + slot, 0, count);
}

/* Tokens start to stop of a piece as targets, where its spans say which of them weigh what. */
static void put_spans(const lane *l, const tokenreel_piece *p, const tokenreel_span *spans,
                      int64_t start, int64_t stop) {
    for (Py_ssize_t s = p->first_span; s < p->stop_span && start < stop; s++) {
        int64_t low = spans[s].start > start ? spans[s].start : start;
        int64_t high = spans[s].stop < stop ? spans[s].stop : stop;
        if (low >= high || !(spans[s].weight > 0)) continue;
        ignore(l, l->at + start - 1, low - start);
        put_tokens(p, l->labels + l->at + low - 1, NULL, low, high);
        if (l->weights) put_weight(l->weights + l->at + low - 1, spans[s].weight, high - low);
        start = high;
    }
    if (start < stop) ignore(l, l->at + start - 1, stop - start);
}

/* What the targets start to stop of a piece weigh that has no spans. */
static void put_weights(const lane *l, const tokenreel_piece *p, int64_t start, int64_t stop) {
    int64_t slot = l->at + start - 1;
    float *weights = l->weights ? l->weights + slot : NULL;
    if (start >= stop) return;
    if (p->stored && !p->weighed) { /* shown as they are, whatever they are */
        if (weights && p->stored_bytes == 1)
            show_u8(weights, (const uint8_t *)p->stored + start, stop - start);
        else if (weights)
            memcpy(weights, p->stored + start * 4, (size_t)(stop - start) * 4);
    } else if (p->stored && p->stored_bytes == 1)
        weigh_u8(p->stored + start, l->labels + slot, weights, stop - start);
    else if (p->stored)
        weigh_f32(p->stored + start * 4, l->labels + slot, weights, stop - start);
    else if (weights)
        put_weight(weights, 1, stop - start);
}

/* Tokens start to stop of a piece: token k is the input of stream slot at + k and the label of the
 * one before. Those before `from` are nobody's target, those from `shown` on nobody's input. */
static void put_block(const lane *l, const tokenreel_piece *p, const tokenreel_span *spans,
                      int64_t start, int64_t stop, int64_t from, int64_t shown) {
    int64_t target = from > start ? from : start, input = shown < stop ? shown : stop;
    int64_t *inputs = l->inputs + l->at, *labels = l->labels + (l->at + target - 1);
    if (p->weighed && !p->stored) {
        put_tokens(p, inputs + start, NULL, start, input);
        put_spans(l, p, spans, target, stop);
    } else {
        put_tokens(p, inputs + start, NULL, start, target < input ? target : input);
        put_tokens(p, inputs + target, labels, target, input);
        int64_t rest = target > input ? target : input;
        put_tokens(p, labels + (rest - target), NULL, rest, stop);
        put_weights(l, p, target, stop);
    }
    int64_t count = input > start ? input - start : 0, slot = l->at + start;
    if (l->segments) put_segment(l->segments + slot, l->segment, count);
    if (l->positions) put_positions(l->positions + slot, l->position + (int32_t)start, count);
    if (l->mask) memset(l->mask + slot, 1, (size_t)count);
}

/* Pieces lie anywhere in memory, and the processor does not fetch across pages by itself: so
 * they are copied a block at a time, and what comes AHEAD blocks later is asked for meanwhile. */
#define BLOCK 256
#define AHEAD 12

typedef struct {
    const tokenreel_piece *piece, *end;
    int64_t at;
} cursor;

PREFETCHING void announce_bytes(const char *from, int64_t count) {
    PREFETCH(from + count - 1);
    for (const char *stop = from + count; from < stop; from += 64) PREFETCH(from);
}

static void announce(cursor *c) {
    while (c->piece < c->end && c->piece->length == 0) c->piece++;
    if (c->piece == c->end) return;
    int size = tokenreel_size_of(c->piece->kind);
    int64_t rest = c->piece->length - c->at, count = rest < BLOCK ? rest : BLOCK;
    announce_bytes(c->piece->tokens + c->at * size, count * size);
    if (c->piece->stored)
        announce_bytes(c->piece->stored + c->at * c->piece->stored_bytes, count * c->piece->stored_bytes);
    c->at += count;
    if (c->at == c->piece->length) c->piece++, c->at = 0;
}

static void fill_piece(lane *l, const tokenreel_piece *p, const tokenreel_span *spans, cursor *ahead) {
    /* The first target of a segment is ignored, and the first token of a row is nobody's. */
    int64_t from = l->at == 0 || p->begins, shown = l->width - l->at; /* the last token has no input */
    if (shown > p->length) shown = p->length;
    if (p->begins) l->segment++, l->position = 0;
    if (l->at > 0 && p->begins && p->length > 0) ignore(l, l->at - 1, 1);
    for (int64_t start = 0, stop; start < p->length; start = stop) {
        stop = p->length - start > BLOCK ? start + BLOCK : p->length;
        announce(ahead);
        put_block(l, p, spans, start, stop, from, shown);
    }
    l->position += (int32_t)p->length;
    l->at += p->length;
}

static void fill_rest(const lane *l, int64_t pad, int64_t label_pad) {
    int64_t rest = l->width - l->at, last = l->at > 0 ? l->at - 1 : 0;
    if (rest > 0) {
        repeat(l->inputs + l->at, pad, rest);
        if (l->segments) put_segment(l->segments + l->at, 0, rest);
        if (l->positions) put_segment(l->positions + l->at, 0, rest);
        if (l->mask) memset(l->mask + l->at, 0, (size_t)rest);
    }
    if (last < l->width) {
        repeat(l->labels + last, label_pad, l->width - last);
        if (l->weights) put_weight(l->weights + last, 0, l->width - last);
    }
}

static void fill_rows(const tokenreel_rows *rows, const tokenreel_output *out, Py_ssize_t start,
                      Py_ssize_t stop) {
    const Py_ssize_t *offsets = rows->row_offsets;
    cursor ahead = {rows->pieces + offsets[start], rows->pieces + offsets[stop], 0};
    for (int block = 0; block < AHEAD; block++) announce(&ahead);
    for (Py_ssize_t r = start; r < stop; r++) {
        Py_ssize_t slot = (out->out_row ? out->out_row[r] : r) * out->seq_len;
        lane l = {.inputs = out->inputs + slot, .labels = out->labels + slot, .width = out->seq_len};
        if (out->segments) l.segments = out->segments + slot;
        if (out->positions) l.positions = out->positions + slot;
        if (out->weights) l.weights = out->weights + slot;
        if (out->mask) l.mask = out->mask + slot;
        for (Py_ssize_t p = offsets[r]; p < offsets[r + 1]; p++)
            fill_piece(&l, &rows->pieces[p], rows->spans, &ahead);
        fill_rest(&l, out->pad, out->label_pad);
    }
}

typedef struct {
    const tokenreel_rows *rows;
    const tokenreel_output *out;
    _Atomic(const void *) lost; /* the first page that was gone */
} job;

typedef struct {
    const job *job;
    Py_ssize_t start, stop;
} share;

static void fill_share(void *given) {
    const share *s = given;
    fill_rows(s->job->rows, s->job->out, s->start, s->stop);
}

static void fill_some(void *given, Py_ssize_t start, Py_ssize_t stop) {
    job *j = given;
    share s = {j, start, stop};
    if (atomic_load_explicit(&j->lost, memory_order_relaxed)) return; /* the rows are worth nothing */
    const void *lost = tokenreel_guarded(fill_share, &s), *none = NULL;
    if (lost) atomic_compare_exchange_strong(&j->lost, &none, lost);
}

const void *tokenreel_fill(const tokenreel_rows *rows, const tokenreel_output *out) {
    Py_ssize_t threads = out->threads, worth = rows->num_rows * out->seq_len / TOKENREEL_SHARE;
    job j = {rows, out, NULL};
    tokenreel_together(fill_some, &j, rows->num_rows, worth < threads ? worth : threads);
    return atomic_load(&j.lost);
}
