/* Kernel of the feed room: inputs, labels and stored weights of pieces that were looked up before.
 *
 * The reference, and the explanation, is feed/ids.py.
 */
#include "native.h"

#include <string.h>

typedef struct {
    tokenreel_found found;
    const Py_buffer *stored; /* weights of the tokens of each shard; NULL: none are asked for */
} request;

static int item_size(const request *q) { return tokenreel_size_of(q->found.kind); }

/* Stored weights are uint8 or float32, by their size. */
static int weight_size(const request *q, int64_t shard) {
    int64_t tokens = q->found.shards[shard].len / item_size(q), bytes = q->stored[shard].len;
    return bytes == tokens ? 1 : bytes == 4 * tokens ? 4 : 0;
}

static int check_stored(const request *q, Py_ssize_t count) {
    if (count != q->found.num_shards) return 0;
    for (Py_ssize_t shard = 0; shard < count; shard++)
        if (!weight_size(q, shard)) return 0;
    return 1;
}

/* A row that is being filled with ids and stored weights, and how many tokens it has. */
typedef struct {
    int64_t *inputs, *labels;
    float *weights; /* may be NULL */
    int64_t width, at;
} lane;

VECTORISED static void put_bytes(float *to, const uint8_t *from, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) to[i] = from[i];
}

/* Token k of a row is input k and label k - 1: its first token is no label, its last no input. */
static void put_tokens(const request *q, const lane *l, const char *from, int64_t slot, int64_t count) {
    int64_t first = slot == 0, last = slot + count > l->width;
    int kind = q->found.kind, size = item_size(q);
    if (first) tokenreel_widen(kind, from, l->inputs, NULL, 1);
    if (last) tokenreel_widen(kind, from + (count - 1) * size, l->labels + l->width - 1, NULL, 1);
    tokenreel_widen(kind, from + first * size, l->inputs + slot + first, l->labels + slot + first - 1,
                    count - first - last);
}

static void put_weights(const lane *l, const char *from, int size, int64_t slot, int64_t count) {
    int64_t first = slot == 0; /* what no label weighs */
    if (size == 1)
        put_bytes(l->weights + slot + first - 1, (const uint8_t *)from + first, count - first);
    else
        memcpy(l->weights + slot + first - 1, from + first * 4, (size_t)(count - first) * 4);
}

/* Pieces lie anywhere in memory, and the processor does not fetch across pages by itself: so they
 * are copied a block at a time, and the same block of the next piece is asked for meanwhile. Small
 * blocks are faster: half a thousand tokens at once take a fifth longer. */
#define BLOCK 128

typedef struct {
    const char *tokens, *weights; /* weights may be NULL */
    int64_t count;
    int weight_size;
} block;

static block block_of(const request *q, int64_t p, int64_t first) {
    int64_t shard = q->found.buffer[p], at = q->found.start[p] + first, rest = q->found.length[p] - first;
    block b = {.count = rest < 0 ? 0 : rest < BLOCK ? rest : BLOCK};
    b.tokens = (const char *)q->found.shards[shard].buf + at * item_size(q);
    if (!q->stored) return b;
    b.weight_size = weight_size(q, shard);
    b.weights = (const char *)q->stored[shard].buf + at * b.weight_size;
    return b;
}

static void announce(const request *q, int64_t p, int64_t first) {
    block b = block_of(q, p, first);
    for (int64_t i = 0; i < b.count * item_size(q); i += 64) PREFETCH(b.tokens + i);
    for (int64_t i = 0; i < b.count * b.weight_size; i += 64) PREFETCH(b.weights + i);
}

static void fill_piece(const request *q, const lane *l, int64_t p) {
    int64_t next = p + 1 < q->found.row_offsets[q->found.num_rows] ? p + 1 : p;
    int64_t longer = q->found.length[p] > q->found.length[next] ? q->found.length[p] : q->found.length[next];
    for (int64_t first = 0; first < longer; first += BLOCK) {
        block b = block_of(q, p, first);
        announce(q, next, first);
        if (!b.count) continue;
        put_tokens(q, l, b.tokens, l->at + first, b.count);
        if (b.weights) put_weights(l, b.weights, b.weight_size, l->at + first, b.count);
    }
}

static void fill_ids(const request *q, lane l, int64_t pad, int64_t label_pad) {
    for (Py_ssize_t r = 0; r < q->found.num_rows; r++) {
        l.at = 0;
        for (int64_t p = q->found.row_offsets[r]; p < q->found.row_offsets[r + 1]; l.at += q->found.length[p++])
            fill_piece(q, &l, p);
        int64_t shown = l.at > 0 ? l.at - 1 : 0;
        tokenreel_repeat(l.inputs + l.at, pad, l.width - l.at);
        tokenreel_repeat(l.labels + shown, label_pad, l.width - shown);
        if (l.weights) memset(l.weights + shown, 0, (size_t)(l.width - shown) * 4);
        l.inputs += l.width, l.labels += l.width;
        if (l.weights) l.weights += l.width;
    }
}

typedef struct {
    const request *request;
    lane lane;
    int64_t pad, label_pad;
} filling;

static void fill(void *given) {
    const filling *f = given;
    fill_ids(f->request, f->lane, f->pad, f->label_pad);
}

PyObject *tokenreel_gather_ids(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *shard_list, *stored_list = NULL, *result = NULL;
    const char *kind;
    long long pad, label_pad;
    lane l = {0};
    enum { OFFSETS, SHARD, FROM, COUNT, IDS, TARGETS, SHOWN, NUM_VIEWS };
    Py_buffer v[NUM_VIEWS] = {{0}}, *shards = NULL, *stored = NULL;
    if (!PyArg_ParseTuple(args, "O!snLLy*y*y*y*w*w*|w*O!", &PyTuple_Type, &shard_list, &kind, &l.width,
                          &pad, &label_pad, &v[OFFSETS], &v[SHARD], &v[FROM], &v[COUNT], &v[IDS],
                          &v[TARGETS], &v[SHOWN], &PyTuple_Type, &stored_list))
        return NULL;
    if (!(shards = tokenreel_take_all(shard_list)) || (stored_list && !(stored = tokenreel_take_all(stored_list)))) goto done;
    request q = {
        .found = {.row_offsets = v[OFFSETS].buf, .buffer = v[SHARD].buf, .start = v[FROM].buf,
                  .length = v[COUNT].buf, .shards = shards, .kind = tokenreel_kind_of(kind),
                  .num_shards = PyTuple_Size(shard_list), .num_rows = v[OFFSETS].len / 8 - 1,
                  .num_pieces = v[SHARD].len / 8},
        .stored = stored,
    };
    if (!q.found.kind) {
        PyErr_SetString(PyExc_ValueError, "gather_ids: tokens of an unknown kind");
        goto done;
    }
    Py_ssize_t pieces = q.found.num_pieces, slots = q.found.num_rows * l.width;
    int fits = l.width > 0 && q.found.num_rows >= 0 && v[FROM].len == pieces * 8 &&
               v[COUNT].len == pieces * 8 && v[IDS].len == slots * 8 && v[TARGETS].len == slots * 8 &&
               (!stored || (v[SHOWN].len == slots * 4 && check_stored(&q, PyTuple_Size(stored_list))));
    if (!fits || !tokenreel_check_found(&q.found, l.width)) {
        PyErr_SetString(PyExc_ValueError, "gather_ids: sizes do not fit");
        goto done;
    }
    l.inputs = v[IDS].buf, l.labels = v[TARGETS].buf, l.weights = stored ? v[SHOWN].buf : NULL;
    filling f = {&q, l, pad, label_pad};
    const void *lost;
    Py_BEGIN_ALLOW_THREADS;
    lost = tokenreel_guarded(fill, &f);
    Py_END_ALLOW_THREADS;
    result = lost ? tokenreel_raise_lost(lost) : Py_NewRef(Py_None);
done:
    tokenreel_give_back(stored, stored_list ? PyTuple_Size(stored_list) : 0);
    tokenreel_give_back(shards, PyTuple_Size(shard_list));
    tokenreel_release(v, NUM_VIEWS);
    return result;
}
