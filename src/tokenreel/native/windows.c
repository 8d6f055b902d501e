/* Kernel of the feed room for the plainest and most frequent rows: windows over token streams.
 *
 * Order and gather in one call: number of a source's row -> epoch -> permuted row -> shard and
 * offset -> inputs and labels. Windows that cross the border of two shards, or end with the
 * stream, are left to the caller.
 *
 * table, int64 [sources][8]: first bound, number of shards, first shard, rows, epoch of the first
 * permutation, shuffled or not, item size, signed or not. bounds: where each shard of a source
 * begins in its stream, and the end. permutations, uint64 [sources][2][10]: a, b and eight keys,
 * of two successive epochs.
 *
 * Returns 0; 1 + shard if a shard is not open yet (None); -1 if an epoch is not in the table; -2 if
 * a window is not plain.
 */
#include "native.h"

#define COLUMNS 8
#define PERMUTATION 10
enum { FIRST_BOUND, NUM_SHARDS, FIRST_SHARD, NUM_ROWS, EPOCH, SHUFFLED, ITEMSIZE, SIGNED };

typedef struct {
    const char *tokens;
    int kind; /* item size, negative if signed */
} window;

/* Shards that are open for this call; a row of a shard that was opened lately finds it again. */
#define RECENT 64
typedef struct {
    Py_buffer *views;
    Py_ssize_t count;
    Py_ssize_t place[RECENT], slot[RECENT];
} opened;

static const Py_buffer *open_shard(opened *o, PyObject *item, Py_ssize_t place) {
    Py_ssize_t recent = place % RECENT;
    if (o->place[recent] == place + 1) return &o->views[o->slot[recent]];
    if (PyObject_GetBuffer(item, &o->views[o->count], PyBUF_SIMPLE)) return NULL;
    o->place[recent] = place + 1;
    o->slot[recent] = o->count;
    return &o->views[o->count++];
}

#define WIDEN(NAME, TYPE)                                                                      \
    VECTORISED static void NAME(const void *from, int64_t *to, Py_ssize_t count) {             \
        const TYPE *source = from;                                                             \
        for (Py_ssize_t i = 0; i < count; i++) to[i] = (int64_t)source[i];                     \
    }

WIDEN(widen_u8, uint8_t)
WIDEN(widen_u16, uint16_t)
WIDEN(widen_u32, uint32_t)
WIDEN(widen_i8, int8_t)
WIDEN(widen_i16, int16_t)
WIDEN(widen_i32, int32_t)
WIDEN(widen_i64, int64_t)

void tokenreel_widen(const char *from, int kind, int64_t *to, Py_ssize_t count) {
    switch (kind) {
    case 1: widen_u8(from, to, count); break;
    case 2: widen_u16(from, to, count); break;
    case 4: widen_u32(from, to, count); break;
    case -1: widen_i8(from, to, count); break;
    case -2: widen_i16(from, to, count); break;
    case -4: widen_i32(from, to, count); break;
    default: widen_i64(from, to, count);
    }
}

/* Rows lie anywhere in memory, and the processor does not fetch across pages by itself: so each
 * row is copied a block at a time, and the block that comes AHEAD blocks later, be it of this row
 * or of the next ones, is asked for meanwhile. */
#define BLOCK 512
#define AHEAD 6

static Py_ssize_t num_blocks(Py_ssize_t seq_len) { return (seq_len + BLOCK - 1) / BLOCK; }

static int size_of(const window *w) { return w->kind < 0 ? -w->kind : w->kind; }

static void announce(const window *w, Py_ssize_t block, Py_ssize_t seq_len) {
#if defined(__GNUC__)
    Py_ssize_t first = block * BLOCK, last = first + BLOCK < seq_len ? first + BLOCK : seq_len;
    const char *stop = w->tokens + last * size_of(w);
    for (const char *at = w->tokens + first * size_of(w); at < stop; at += 64)
        __builtin_prefetch(at);
#else
    (void)w, (void)block, (void)seq_len;
#endif
}

static void fill(const window *windows, Py_ssize_t count, Py_ssize_t seq_len, int64_t *inputs,
                 int64_t *labels) {
    Py_ssize_t blocks = num_blocks(seq_len), total = count * blocks;
    for (Py_ssize_t k = 0; k < AHEAD && k < total; k++)
        announce(&windows[k / blocks], k % blocks, seq_len);
    Py_ssize_t ahead_row = AHEAD / blocks, ahead_block = AHEAD % blocks;
    for (Py_ssize_t r = 0; r < count; r++) {
        const window *w = &windows[r];
        for (Py_ssize_t block = 0; block < blocks; block++) {
            if (ahead_row < count) announce(&windows[ahead_row], ahead_block, seq_len);
            if (++ahead_block == blocks) ahead_block = 0, ahead_row++;
            Py_ssize_t at = block * BLOCK, size = at + BLOCK < seq_len ? BLOCK : seq_len - at;
            const char *tokens = w->tokens + at * size_of(w);
            tokenreel_widen(tokens, w->kind, inputs + r * seq_len + at, size);
            tokenreel_widen(tokens + size_of(w), w->kind, labels + r * seq_len + at, size);
        }
    }
}

/* The shard that holds a position: the last whose start is not after it. */
static int64_t find_shard(const int64_t *bounds, int64_t num_shards, int64_t position) {
    int64_t low = 0, high = num_shards;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (bounds[middle] <= position) low = middle;
        else high = middle;
    }
    return low;
}

static int64_t row_of(const int64_t *t, const uint64_t *permutations, int64_t number) {
    int64_t epoch = number / t[NUM_ROWS] - t[EPOCH], place = number % t[NUM_ROWS];
    if (epoch < 0 || epoch > 1) return -1;
    if (!t[SHUFFLED]) return place;
    const uint64_t *p = permutations + epoch * PERMUTATION;
    tokenreel_permutation permutation = {
        .length = (uint64_t)t[NUM_ROWS], .a = p[0], .b = p[1], .keys = p + 2};
    return (int64_t)tokenreel_permute_one((uint64_t)place, &permutation, 0);
}

PyObject *tokenreel_windows(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *shards;
    Py_buffer b[7]; /* bounds, table, permutations, source, number, inputs, labels */
    Py_ssize_t seq_len;
    if (!PyArg_ParseTuple(args, "O!y*y*y*y*y*nw*w*", &PyTuple_Type, &shards, &b[0], &b[1], &b[2],
                          &b[3], &b[4], &seq_len, &b[5], &b[6]))
        return NULL;
    const int64_t *bounds = b[0].buf, *table = b[1].buf, *number = b[4].buf;
    const uint64_t *permutations = b[2].buf;
    const int32_t *source = b[3].buf;
    int64_t *inputs = b[5].buf, *labels = b[6].buf;
    Py_ssize_t num_sources = b[1].len / 8 / COLUMNS, count = b[4].len / 8;
    Py_ssize_t num_shards = PyTuple_Size(shards);
    long long missing = 0;
    PyObject *result = NULL;
    opened open = {0};
    window *windows = PyMem_Malloc((count + 1) * sizeof *windows);
    open.views = PyMem_Malloc((count + 1) * sizeof *open.views);
    if (!windows || !open.views) {
        PyErr_NoMemory();
        goto done;
    }
    if (seq_len < 1 || b[2].len != num_sources * 2 * PERMUTATION * 8 || b[3].len != count * 4 ||
        b[5].len != count * seq_len * 8 || b[6].len != b[5].len) {
        PyErr_SetString(PyExc_ValueError, "windows: buffer sizes do not fit");
        goto done;
    }
    for (Py_ssize_t r = 0; r < count; r++) {
        window *w = &windows[r];
        if (source[r] < 0 || source[r] >= num_sources) {
            PyErr_SetString(PyExc_ValueError, "windows: no such source");
            goto done;
        }
        const int64_t *t = table + source[r] * COLUMNS;
        int64_t row = row_of(t, permutations + source[r] * 2 * PERMUTATION, number[r]);
        if (row < 0) {
            missing = -1;
            break;
        }
        const int64_t *mine = bounds + t[FIRST_BOUND];
        int64_t start = row * seq_len, stop = start + seq_len + 1;
        int64_t shard = find_shard(mine, t[NUM_SHARDS], start);
        if (stop > mine[shard + 1]) {
            missing = -2;
            break;
        }
        Py_ssize_t place = t[FIRST_SHARD] + shard;
        PyObject *item = place < num_shards ? PyTuple_GetItem(shards, place) : NULL;
        if (item == Py_None) {
            missing = 1 + place;
            break;
        }
        const Py_buffer *view = item ? open_shard(&open, item, place) : NULL;
        if (!view) goto done;
        w->kind = (int)(t[SIGNED] ? -t[ITEMSIZE] : t[ITEMSIZE]);
        w->tokens = (const char *)view->buf + (start - mine[shard]) * t[ITEMSIZE];
        if ((stop - mine[shard]) * t[ITEMSIZE] > view->len) {
            PyErr_SetString(PyExc_ValueError, "windows: a shard is shorter than its bounds say");
            goto done;
        }
    }
    if (!missing) {
        Py_BEGIN_ALLOW_THREADS;
        fill(windows, count, seq_len, inputs, labels);
        Py_END_ALLOW_THREADS;
    }
    result = PyLong_FromLongLong(missing);
done:
    while (open.count > 0) PyBuffer_Release(&open.views[--open.count]);
    PyMem_Free(open.views);
    PyMem_Free(windows);
    for (int i = 0; i < 7; i++) PyBuffer_Release(&b[i]);
    return result;
}
