/* Kernel of the feed room: rows from pieces that were looked up before, as arrays.
 *
 * The reference, and the explanation, is feed/gather.py.
 */
#include "native.h"

/* The arguments of gather, as feed/gather.py hands them over; row r has pieces row_offsets[r] to
 * row_offsets[r + 1]. */
typedef struct {
    const int64_t *row_offsets, *buffer, *start, *length; /* buffer: which of the shards it is in */
    const Py_buffer *shards;
    int8_t kind; /* as that of a tokenreel_piece */
    Py_ssize_t num_rows, num_pieces, num_shards;
    const int64_t *out_row; /* NULL: row r is put where row r is */
    const uint8_t *first;
    const int64_t *span_offsets, *span_start, *span_stop; /* NULL: every token weighs 1 */
    const float *span_weight;
    const Py_buffer *stored; /* weights of the tokens of each shard, or NULL; then there are no spans */
    Py_ssize_t num_spans, out_rows;
} request;

/* Whether pieces read nothing outside their shard, and no row has more than `width` + 1 tokens. */
static int check_pieces(const request *q, Py_ssize_t width) {
    for (Py_ssize_t r = 0; r < q->num_rows; r++) {
        int64_t total = 0, p = q->row_offsets[r], stop = q->row_offsets[r + 1];
        if (p < 0 || stop < p || stop > q->num_pieces) return 0;
        for (; p < stop; p++) {
            if (q->buffer[p] < 0 || q->buffer[p] >= q->num_shards || q->start[p] < 0 || q->length[p] < 0)
                return 0;
            int64_t tokens = q->shards[q->buffer[p]].len / tokenreel_size_of(q->kind);
            if (q->start[p] > tokens || q->length[p] > tokens - q->start[p]) return 0;
            total += q->length[p];
            if (total > width + 1) return 0;
        }
    }
    return 1;
}

/* Stored weights are uint8 or float32, by their size; 0: neither. */
static int8_t stored_bytes(const request *q, Py_ssize_t shard) {
    Py_ssize_t tokens = q->shards[shard].len / tokenreel_size_of(q->kind);
    Py_ssize_t bytes = q->stored[shard].len;
    return bytes == tokens ? 1 : bytes == 4 * tokens ? 4 : 0;
}

/* Whether rows are put, and spans and stored weights looked for, where there are some. */
static int check(const request *q) {
    for (Py_ssize_t shard = 0; q->stored && shard < q->num_shards; shard++)
        if (!stored_bytes(q, shard)) return 0;
    for (Py_ssize_t r = 0; r < q->num_rows; r++) {
        int64_t row = q->out_row ? q->out_row[r] : r;
        if (row < 0 || row >= q->out_rows) return 0;
        for (int64_t p = q->row_offsets[r]; q->span_offsets && p < q->row_offsets[r + 1]; p++)
            if (q->span_offsets[p] < 0 || q->span_offsets[p + 1] < q->span_offsets[p] ||
                q->span_offsets[p + 1] > q->num_spans)
                return 0;
    }
    return 1;
}

static int collect(const request *q, tokenreel_rows *rows) {
    if (!tokenreel_allocate_rows(rows, q->num_rows)) return 0;
    for (Py_ssize_t r = 0; r < q->num_rows; r++) {
        for (int64_t p = q->row_offsets[r]; p < q->row_offsets[r + 1]; p++) {
            tokenreel_piece piece = {.length = q->length[p], .kind = q->kind, .begins = q->first[p],
                                     .weighed = q->span_offsets != NULL, .first_span = rows->num_spans};
            piece.tokens = (const char *)q->shards[q->buffer[p]].buf + q->start[p] * tokenreel_size_of(q->kind);
            if (q->stored) {
                piece.stored_bytes = stored_bytes(q, q->buffer[p]);
                piece.stored = (const char *)q->stored[q->buffer[p]].buf + q->start[p] * piece.stored_bytes;
            }
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

/* "u2" is uint16, "i4" int32, …: the item size, negative if signed; 0 for any other. */
static int8_t kind_of(const char *kind) {
    if (!kind[0] || !kind[1] || kind[2]) return 0;
    int known = kind[1] == '1' || kind[1] == '2' || kind[1] == '4';
    int8_t size = (int8_t)(kind[1] - '0');
    if (kind[0] == 'u' && known) return size;
    return kind[0] == 'i' && (known || size == 8) ? (int8_t)-size : 0;
}

/* Take the buffers of a tuple; NULL with an error if one is none. */
static Py_buffer *take_all(PyObject *tuple) {
    Py_ssize_t count = PyTuple_Size(tuple);
    Py_buffer *views = PyMem_Calloc(count ? count : 1, sizeof *views);
    if (!views) PyErr_NoMemory();
    for (Py_ssize_t i = 0; views && i < count; i++)
        if (PyObject_GetBuffer(PyTuple_GetItem(tuple, i), &views[i], PyBUF_SIMPLE)) {
            tokenreel_release(views, i);
            PyMem_Free(views);
            return NULL;
        }
    return views;
}

static void give_back(Py_buffer *views, Py_ssize_t count) {
    if (views) tokenreel_release(views, count);
    PyMem_Free(views);
}

PyObject *tokenreel_gather(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *shard_list, *stored_list, *objects[NUM_BUFFERS];
    const char *kind;
    Py_ssize_t width;
    long long pad, label_pad;
    if (!PyArg_ParseTuple(args, "O!snLLO!OOOOOOOOOOOOOOO", &PyTuple_Type, &shard_list, &kind, &width,
                          &pad, &label_pad, &PyTuple_Type, &stored_list, &objects[0], &objects[1],
                          &objects[2], &objects[3], &objects[4], &objects[5], &objects[6],
                          &objects[7], &objects[8], &objects[9], &objects[10], &objects[11],
                          &objects[12], &objects[13], &objects[14]))
        return NULL;
    Py_buffer views[NUM_BUFFERS];
    Py_ssize_t taken = 0, num_shards = PyTuple_Size(shard_list), num_stored = PyTuple_Size(stored_list);
    PyObject *result = NULL;
    Py_buffer *stored = NULL, *shards = take_all(shard_list);
    if (!shards || (num_stored && !(stored = take_all(stored_list)))) goto done;
    for (; taken < NUM_BUFFERS; taken++) {
        int writable = taken >= INPUTS && taken <= WEIGHTS;
        if (!take(objects[taken], &views[taken], writable, taken < NUM_NEEDED && taken != OUT_ROW)) goto done;
    }
    request q = {
        .row_offsets = views[ROW_OFFSETS].buf, .buffer = views[BUFFER].buf,
        .start = views[START].buf, .length = views[LENGTH].buf, .shards = shards,
        .kind = kind_of(kind), .num_shards = num_shards,
        .num_rows = views[ROW_OFFSETS].len / 8 - 1, .num_pieces = views[BUFFER].len / 8,
        .out_row = views[OUT_ROW].buf, .first = views[FIRST].buf,
        .span_offsets = views[SPAN_OFFSETS].buf, .span_start = views[SPAN_START].buf,
        .span_stop = views[SPAN_STOP].buf, .span_weight = views[SPAN_WEIGHT].buf,
        .stored = stored, .num_spans = views[SPAN_START].len / 8,
        .out_rows = width > 0 ? views[INPUTS].len / 8 / width : 0,
    };
    tokenreel_output out = {
        .seq_len = width, .pad = pad, .label_pad = label_pad, .out_row = q.out_row, .inputs = views[INPUTS].buf,
        .labels = views[LABELS].buf, .segments = views[SEGMENTS].buf,
        .positions = views[POSITIONS].buf, .weights = views[WEIGHTS].buf,
    };
    if (!q.kind) {
        PyErr_SetString(PyExc_ValueError, "gather: tokens of an unknown kind");
        goto done;
    }
    Py_ssize_t rows_asked = q.num_rows, pieces = q.num_pieces, slots = q.out_rows * width;
    int fits = width > 0 && rows_asked >= 0 && (!q.out_row || views[OUT_ROW].len == rows_asked * 8) &&
               (!stored || (num_stored == num_shards && !q.span_offsets)) &&
               views[START].len == pieces * 8 && views[LENGTH].len == pieces * 8 &&
               views[FIRST].len == pieces && views[INPUTS].len == slots * 8 &&
               views[LABELS].len == slots * 8 && (!out.segments || views[SEGMENTS].len == slots * 4) &&
               (!out.positions || views[POSITIONS].len == slots * 4) &&
               (!out.weights || views[WEIGHTS].len == slots * 4) &&
               (!q.span_offsets || (views[SPAN_OFFSETS].len == (pieces + 1) * 8 &&
                                    views[SPAN_START].len == views[SPAN_STOP].len &&
                                    views[SPAN_WEIGHT].len == q.num_spans * 4));
    if (!fits || !check_pieces(&q, width) || !check(&q)) {
        PyErr_SetString(PyExc_ValueError, "gather: sizes do not fit");
        goto done;
    }
    tokenreel_rows rows;
    int collected;
    const void *lost = NULL;
    Py_BEGIN_ALLOW_THREADS;
    collected = collect(&q, &rows);
    if (collected) lost = tokenreel_fill(&rows, &out);
    tokenreel_free_rows(&rows);
    Py_END_ALLOW_THREADS;
    result = !collected ? PyErr_NoMemory() : lost ? tokenreel_raise_lost(lost) : Py_NewRef(Py_None);
done:
    tokenreel_release(views, taken);
    give_back(stored, num_stored);
    give_back(shards, num_shards);
    return result;
}
