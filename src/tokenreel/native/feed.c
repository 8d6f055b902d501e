/* Kernels of the feed room.
 *
 * gather: rows from pieces of shards: cast, shift, mask, segment, number, pad, in one pass.
 * The reference, and the explanation, is feed/gather.py.
 */
#include "native.h"

#define IGNORED (-100)

typedef struct {
    const int64_t *row_offsets, *out_row, *buffer, *start, *length;
    const uint8_t *first;
    const int64_t *span_offsets, *span_start, *span_stop; /* NULL: every token weighs 1 */
    const float *span_weight;
    const Py_buffer *shards;
    char kind;
    int itemsize;
    Py_ssize_t num_inputs;
    int64_t pad;
    int64_t *inputs, *labels;
    int32_t *segments, *positions; /* may be NULL */
    float *weights;                /* may be NULL */
} job;

static void copy_tokens(const job *j, Py_ssize_t shard, int64_t start, Py_ssize_t count,
                        int64_t *to) {
    const char *base = (const char *)j->shards[shard].buf + start * j->itemsize;
    if (count > 0) tokenreel_widen(base, j->kind == 'i' ? -j->itemsize : j->itemsize, to, count);
}

VECTORISED static void put_weights(float *to, float weight, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) to[i] = weight;
}

VECTORISED static void put_segments(int32_t *to, int32_t segment, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) to[i] = segment;
}

VECTORISED static void put_positions(int32_t *to, int32_t first, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) to[i] = first + (int32_t)i;
}

VECTORISED static void put_ignored(int64_t *to, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) to[i] = IGNORED;
}

/* The targets of one piece: token k of the piece is the label of stream slot at + k - 1. */
static void fill_targets(const job *j, Py_ssize_t p, Py_ssize_t at, Py_ssize_t count,
                         int64_t *labels, float *weights) {
    if (count <= 0) return;
    int64_t from = at == 0 || j->first[p] ? 1 : 0; /* the first target of a segment is ignored */
    if (at > 0 && j->first[p]) {
        labels[at - 1] = IGNORED;
        if (weights) weights[at - 1] = 0;
    }
    if (from >= count) return;
    if (!j->span_offsets) {
        copy_tokens(j, j->buffer[p], j->start[p] + from, count - from, labels + at - 1 + from);
        if (weights) put_weights(weights + at - 1 + from, 1, count - from);
        return;
    }
    put_ignored(labels + at - 1 + from, count - from);
    if (weights) put_weights(weights + at - 1 + from, 0, count - from);
    for (int64_t s = j->span_offsets[p]; s < j->span_offsets[p + 1]; s++) {
        int64_t start = j->span_start[s] > from ? j->span_start[s] : from;
        int64_t stop = j->span_stop[s] < count ? j->span_stop[s] : count;
        if (start >= stop || !(j->span_weight[s] > 0)) continue;
        copy_tokens(j, j->buffer[p], j->start[p] + start, stop - start, labels + at - 1 + start);
        if (weights) put_weights(weights + at - 1 + start, j->span_weight[s], stop - start);
    }
}

static void fill_row(const job *j, Py_ssize_t row) {
    Py_ssize_t width = j->num_inputs, at = 0, slot = j->out_row[row] * width;
    int64_t *inputs = j->inputs + slot, *labels = j->labels + slot;
    int32_t *segments = j->segments ? j->segments + slot : NULL;
    int32_t *positions = j->positions ? j->positions + slot : NULL;
    float *weights = j->weights ? j->weights + slot : NULL;
    int32_t segment = 0, position = 0;
    for (int64_t p = j->row_offsets[row]; p < j->row_offsets[row + 1]; p++) {
        Py_ssize_t count = j->length[p];
        Py_ssize_t shown = at + count <= width ? count : width - at; /* the last token has no input */
        if (j->first[p]) segment++, position = 0;
        copy_tokens(j, j->buffer[p], j->start[p], shown, inputs + at);
        if (segments) put_segments(segments + at, segment, shown);
        if (positions) put_positions(positions + at, position, shown);
        fill_targets(j, p, at, count, labels, weights);
        position += (int32_t)count;
        at += count;
    }
    for (Py_ssize_t k = at; k < width; k++) {
        inputs[k] = j->pad;
        if (segments) segments[k] = 0;
        if (positions) positions[k] = 0;
    }
    for (Py_ssize_t k = at > 0 ? at - 1 : 0; k < width; k++) {
        labels[k] = IGNORED;
        if (weights) weights[k] = 0;
    }
}

/* Refuse pieces that would read outside their shard or write outside their row. */
static int check(const job *j, Py_ssize_t rows, Py_ssize_t out_rows, Py_ssize_t pieces,
                 Py_ssize_t shards) {
    for (Py_ssize_t r = 0; r < rows; r++) {
        if (j->out_row[r] < 0 || j->out_row[r] >= out_rows) return 0;
        int64_t total = 0, p = j->row_offsets[r], stop = j->row_offsets[r + 1];
        if (p < 0 || stop < p || stop > pieces) return 0;
        for (; p < stop; p++) {
            if (j->buffer[p] < 0 || j->buffer[p] >= shards || j->start[p] < 0 || j->length[p] < 0)
                return 0;
            int64_t tokens = j->shards[j->buffer[p]].len / j->itemsize;
            if (j->start[p] > tokens || j->length[p] > tokens - j->start[p]) return 0;
            total += j->length[p];
            if (total > j->num_inputs + 1) return 0;
            if (j->span_offsets && (j->span_offsets[p] < 0 || j->span_offsets[p + 1] < j->span_offsets[p]))
                return 0;
        }
    }
    return 1;
}

enum { ROW_OFFSETS, OUT_ROW, BUFFER, START, LENGTH, FIRST, INPUTS, LABELS, NUM_NEEDED };
enum { SEGMENTS = NUM_NEEDED, POSITIONS, WEIGHTS, SPAN_OFFSETS, SPAN_START, SPAN_STOP, SPAN_WEIGHT,
       NUM_BUFFERS };

static int take(PyObject *object, Py_buffer *view, int writable, int needed) {
    if (object == Py_None && !needed) {
        view->obj = NULL, view->buf = NULL, view->len = 0;
        return 1;
    }
    return PyObject_GetBuffer(object, view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) == 0;
}

/* "u2" is uint16, "i4" int32, … */
static int known_kind(const char *kind) {
    if (!kind[0] || !kind[1] || kind[2]) return 0;
    int known = kind[1] == '1' || kind[1] == '2' || kind[1] == '4';
    return (kind[0] == 'u' && known) || (kind[0] == 'i' && (known || kind[1] == '8'));
}

PyObject *tokenreel_gather(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *shard_list, *objects[NUM_BUFFERS];
    const char *kind;
    Py_ssize_t width;
    long long pad;
    if (!PyArg_ParseTuple(args, "O!snLOOOOOOOOOOOOOOO", &PyTuple_Type, &shard_list, &kind, &width,
                          &pad, &objects[0], &objects[1], &objects[2], &objects[3], &objects[4],
                          &objects[5], &objects[6], &objects[7], &objects[8], &objects[9],
                          &objects[10], &objects[11], &objects[12], &objects[13],
                          &objects[14]))
        return NULL;
    Py_buffer views[NUM_BUFFERS];
    Py_ssize_t taken = 0, num_shards = PyTuple_Size(shard_list), open_shards = 0;
    PyObject *result = NULL;
    Py_buffer *shards = PyMem_Calloc(num_shards ? num_shards : 1, sizeof *shards);
    if (!shards) return PyErr_NoMemory();
    for (; taken < NUM_BUFFERS; taken++) {
        int writable = taken >= INPUTS && taken <= WEIGHTS;
        if (!take(objects[taken], &views[taken], writable, taken < NUM_NEEDED)) goto done;
    }
    for (; open_shards < num_shards; open_shards++)
        if (PyObject_GetBuffer(PyTuple_GetItem(shard_list, open_shards), &shards[open_shards],
                               PyBUF_SIMPLE))
            goto done;
    job j = {
        .row_offsets = views[ROW_OFFSETS].buf, .out_row = views[OUT_ROW].buf, .buffer = views[BUFFER].buf,
        .start = views[START].buf, .length = views[LENGTH].buf, .first = views[FIRST].buf,
        .span_offsets = views[SPAN_OFFSETS].buf, .span_start = views[SPAN_START].buf,
        .span_stop = views[SPAN_STOP].buf, .span_weight = views[SPAN_WEIGHT].buf,
        .shards = shards, .kind = kind[0], .itemsize = kind[1] - '0', .num_inputs = width,
        .pad = pad, .inputs = views[INPUTS].buf, .labels = views[LABELS].buf,
        .segments = views[SEGMENTS].buf, .positions = views[POSITIONS].buf,
        .weights = views[WEIGHTS].buf,
    };
    if (!known_kind(kind)) {
        PyErr_SetString(PyExc_ValueError, "gather: tokens of an unknown kind");
        goto done;
    }
    Py_ssize_t rows = views[ROW_OFFSETS].len / 8 - 1, pieces = views[BUFFER].len / 8;
    Py_ssize_t out_rows = width > 0 ? views[INPUTS].len / 8 / width : 0, slots = out_rows * width;
    int fits = width > 0 && rows >= 0 && views[OUT_ROW].len == rows * 8 && views[START].len == pieces * 8 &&
               views[LENGTH].len == pieces * 8 && views[FIRST].len == pieces &&
               views[INPUTS].len == slots * 8 && views[LABELS].len == slots * 8 &&
               (!j.segments || views[SEGMENTS].len == slots * 4) &&
               (!j.positions || views[POSITIONS].len == slots * 4) &&
               (!j.weights || views[WEIGHTS].len == slots * 4) &&
               (!j.span_offsets || (views[SPAN_OFFSETS].len == (pieces + 1) * 8 &&
                                    views[SPAN_START].len == views[SPAN_STOP].len &&
                                    views[SPAN_WEIGHT].len * 2 == views[SPAN_START].len &&
                                    j.span_offsets[pieces] * 8 <= views[SPAN_START].len));
    if (!fits || !check(&j, rows, out_rows, pieces, num_shards)) {
        PyErr_SetString(PyExc_ValueError, "gather: sizes do not fit");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t row = 0; row < rows; row++) fill_row(&j, row);
    Py_END_ALLOW_THREADS;
    result = Py_NewRef(Py_None);
done:
    for (Py_ssize_t i = 0; i < open_shards; i++) PyBuffer_Release(&shards[i]);
    for (Py_ssize_t i = 0; i < taken; i++)
        if (views[i].obj) PyBuffer_Release(&views[i]);
    PyMem_Free(shards);
    return result;
}
