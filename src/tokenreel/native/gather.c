/* Kernel of the feed room: rows from pieces that were looked up before, as arrays.
 *
 * The reference, and the explanation, is feed/gather.py.
 */
#include "native.h"

/* The arguments of gather, as feed/gather.py hands them over. */
typedef struct {
    const int64_t *row_offsets, *out_row, *buffer, *start, *length;
    const uint8_t *first;
    const int64_t *span_offsets, *span_start, *span_stop; /* NULL: every token weighs 1 */
    const float *span_weight;
    const Py_buffer *shards;
    int8_t kind;
    Py_ssize_t num_rows, num_pieces, num_shards, num_spans, num_inputs, out_rows;
} request;

static int item_size(const request *q) { return q->kind < 0 ? -q->kind : q->kind; }

/* Refuse pieces that would read outside their shard or write outside their row. */
static int check(const request *q) {
    for (Py_ssize_t r = 0; r < q->num_rows; r++) {
        if (q->out_row[r] < 0 || q->out_row[r] >= q->out_rows) return 0;
        int64_t total = 0, p = q->row_offsets[r], stop = q->row_offsets[r + 1];
        if (p < 0 || stop < p || stop > q->num_pieces) return 0;
        for (; p < stop; p++) {
            if (q->buffer[p] < 0 || q->buffer[p] >= q->num_shards || q->start[p] < 0 || q->length[p] < 0)
                return 0;
            int64_t tokens = q->shards[q->buffer[p]].len / item_size(q);
            if (q->start[p] > tokens || q->length[p] > tokens - q->start[p]) return 0;
            total += q->length[p];
            if (total > q->num_inputs + 1) return 0;
            if (q->span_offsets &&
                (q->span_offsets[p] < 0 || q->span_offsets[p + 1] < q->span_offsets[p] ||
                 q->span_offsets[p + 1] > q->num_spans))
                return 0;
        }
    }
    return 1;
}

static int collect(const request *q, tokenreel_rows *rows) {
    if (!tokenreel_allocate_rows(rows, q->num_rows)) return 0;
    for (Py_ssize_t r = 0; r < q->num_rows; r++) {
        for (int64_t p = q->row_offsets[r]; p < q->row_offsets[r + 1]; p++) {
            tokenreel_piece piece = {.length = q->length[p], .kind = q->kind, .begins = q->first[p],
                                     .weighed = q->span_offsets != NULL, .first_span = rows->num_spans};
            piece.tokens = (const char *)q->shards[q->buffer[p]].buf + q->start[p] * item_size(q);
            for (int64_t s = piece.weighed ? q->span_offsets[p] : 0;
                 piece.weighed && s < q->span_offsets[p + 1]; s++)
                if (!tokenreel_add_span(
                        rows, (tokenreel_span){q->span_start[s], q->span_stop[s], q->span_weight[s]}))
                    return 0;
            piece.stop_span = rows->num_spans;
            if (!tokenreel_add_piece(rows, piece)) return 0;
        }
        rows->row_offsets[r + 1] = rows->num_pieces;
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
    int8_t size = (int8_t)(kind[0] && kind[1] ? kind[1] - '0' : 0);
    request q = {
        .row_offsets = views[ROW_OFFSETS].buf, .out_row = views[OUT_ROW].buf, .buffer = views[BUFFER].buf,
        .start = views[START].buf, .length = views[LENGTH].buf, .first = views[FIRST].buf,
        .span_offsets = views[SPAN_OFFSETS].buf, .span_start = views[SPAN_START].buf,
        .span_stop = views[SPAN_STOP].buf, .span_weight = views[SPAN_WEIGHT].buf,
        .shards = shards, .kind = kind[0] == 'i' ? (int8_t)-size : size, .num_shards = num_shards,
        .num_rows = views[ROW_OFFSETS].len / 8 - 1, .num_pieces = views[BUFFER].len / 8,
        .num_spans = views[SPAN_START].len / 8, .num_inputs = width,
        .out_rows = width > 0 ? views[INPUTS].len / 8 / width : 0,
    };
    tokenreel_output out = {
        .seq_len = width, .pad = pad, .out_row = q.out_row, .inputs = views[INPUTS].buf,
        .labels = views[LABELS].buf, .segments = views[SEGMENTS].buf,
        .positions = views[POSITIONS].buf, .weights = views[WEIGHTS].buf,
    };
    if (!known_kind(kind)) {
        PyErr_SetString(PyExc_ValueError, "gather: tokens of an unknown kind");
        goto done;
    }
    Py_ssize_t pieces = q.num_pieces, slots = q.out_rows * width;
    int fits = width > 0 && q.num_rows >= 0 && views[OUT_ROW].len == q.num_rows * 8 &&
               views[START].len == pieces * 8 && views[LENGTH].len == pieces * 8 &&
               views[FIRST].len == pieces && views[INPUTS].len == slots * 8 &&
               views[LABELS].len == slots * 8 && (!out.segments || views[SEGMENTS].len == slots * 4) &&
               (!out.positions || views[POSITIONS].len == slots * 4) &&
               (!out.weights || views[WEIGHTS].len == slots * 4) &&
               (!q.span_offsets || (views[SPAN_OFFSETS].len == (pieces + 1) * 8 &&
                                    views[SPAN_START].len == views[SPAN_STOP].len &&
                                    views[SPAN_WEIGHT].len == q.num_spans * 4));
    if (!fits || !check(&q)) {
        PyErr_SetString(PyExc_ValueError, "gather: sizes do not fit");
        goto done;
    }
    tokenreel_rows rows;
    int collected;
    Py_BEGIN_ALLOW_THREADS;
    collected = collect(&q, &rows);
    if (collected) tokenreel_fill(&rows, &out);
    tokenreel_free_rows(&rows);
    Py_END_ALLOW_THREADS;
    if (!collected) {
        PyErr_NoMemory();
        goto done;
    }
    result = Py_NewRef(Py_None);
done:
    for (Py_ssize_t i = 0; i < open_shards; i++) PyBuffer_Release(&shards[i]);
    for (Py_ssize_t i = 0; i < taken; i++)
        if (views[i].obj) PyBuffer_Release(&views[i]);
    PyMem_Free(shards);
    return result;
}
