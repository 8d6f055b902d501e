/* Kernels of the feed room: from a position of the run to finished rows, in one call.
 *
 * assemble makes the rows, announce has their pages read, weigh adds up what they weigh. The tables
 * are laid out by feed/kernel_tables.py, which says what they hold and keeps alive what they point to.
 *
 * Each returns 0; a tuple of the shards that are not open yet; or why rows must be made another way:
 * TOKENREEL_EPOCH (no permutation of that epoch is at hand), _OTHERWISE (something the general way
 * does, or refuses and explains) or _PADDED (a padded row, where no segments are asked for). A file
 * that was cut off while it was mapped is a DamageError.
 */
#if defined(__linux__)
#define _DEFAULT_SOURCE /* madvise */
#endif
#include "native.h"

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#include <unistd.h>
#endif

static int is_padded(const tokenreel_rows *rows, Py_ssize_t seq_len) {
    for (Py_ssize_t r = 0; r < rows->num_rows; r++) {
        int64_t length = 0;
        for (Py_ssize_t p = rows->row_offsets[r]; p < rows->row_offsets[r + 1]; p++)
            length += rows->pieces[p].length;
        if (length <= seq_len) return 1;
    }
    return 0;
}

static PyObject *answer(int64_t missing, const tokenreel_rows *rows) {
    if (missing == TOKENREEL_MEMORY) return PyErr_NoMemory();
    if (missing == TOKENREEL_LOST) return tokenreel_raise_lost(rows->lost);
    if (missing <= 0) return PyLong_FromLongLong(missing);
    PyObject *shards = PyTuple_New(rows->num_missing);
    for (Py_ssize_t i = 0; i < rows->num_missing && shards; i++) {
        PyObject *shard = PyLong_FromLongLong(rows->missing[i]);
        if (!shard || PyTuple_SetItem(shards, i, shard)) Py_CLEAR(shards);
    }
    return shards;
}

enum { INPUTS, LABELS, SEGMENTS, POSITIONS, WEIGHTS, MASK, SOURCE_IDS, NUM_FIELDS };

/* Does each array that was given have its number of bytes? */
static int has_sizes(const Py_buffer *v, Py_ssize_t rows, Py_ssize_t slots) {
    const Py_ssize_t sizes[NUM_FIELDS] = {slots * 8, slots * 8, slots * 4, slots * 4,
                                          slots * 4, slots,     rows * 4};
    for (int i = 0; i < NUM_FIELDS; i++)
        if ((v[i].obj || i <= LABELS) && v[i].len != sizes[i]) return 0;
    return 1;
}

PyObject *tokenreel_assemble(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer views[TOKENREEL_REQUEST_VIEWS], v[NUM_FIELDS] = {{0}};
    tokenreel_request q;
    PyObject *result = NULL, *fields[NUM_FIELDS], *rest;
    Py_ssize_t seq_len;
    long long pad;
    int threads;
    if (!tokenreel_take_request(args, views, &q)) return NULL;
    rest = PyTuple_GetSlice(args, TOKENREEL_REQUEST_ARGS, PyTuple_Size(args));
    if (!rest || !PyArg_ParseTuple(rest, "nLiOOOOOOO", &seq_len, &pad, &threads, &fields[0], &fields[1],
                                   &fields[2], &fields[3], &fields[4], &fields[5], &fields[6]))
        goto done;
    for (int i = 0; i < NUM_FIELDS; i++)
        if ((i <= LABELS || fields[i] != Py_None) &&
            PyObject_GetBuffer(fields[i], &v[i], PyBUF_WRITABLE))
            goto done;
    if (seq_len < 1 || q.count > PY_SSIZE_T_MAX / 8 / seq_len || !has_sizes(v, q.count, q.count * seq_len)) {
        PyErr_SetString(PyExc_ValueError, "assemble: buffer sizes do not fit");
        goto done;
    }
    tokenreel_output out = {.seq_len = seq_len, .pad = pad, .label_pad = TOKENREEL_IGNORED,
                            .inputs = v[INPUTS].buf,
                            .labels = v[LABELS].buf, .segments = v[SEGMENTS].buf,
                            .positions = v[POSITIONS].buf, .weights = v[WEIGHTS].buf,
                            .mask = v[MASK].buf, .threads = threads};
    int64_t missing;
    tokenreel_rows rows;
    Py_BEGIN_ALLOW_THREADS;
    missing = tokenreel_find(&q, seq_len, v[SOURCE_IDS].buf, &rows);
    if (!missing && !out.segments && is_padded(&rows, seq_len)) missing = TOKENREEL_PADDED;
    if (!missing && (rows.lost = tokenreel_fill(&rows, &out))) missing = TOKENREEL_LOST;
    Py_END_ALLOW_THREADS;
    result = answer(missing, &rows);
    tokenreel_free_rows(&rows);
done:
    Py_XDECREF(rest);
    tokenreel_release(v, NUM_FIELDS);
    tokenreel_release(views, TOKENREEL_REQUEST_VIEWS);
    return result;
}

/* Have the system read the pages of memory in which some bytes lie; where it cannot, nothing. */
static void announce_bytes(const char *start, int64_t count) {
#if defined(MADV_WILLNEED)
    static uintptr_t page = 0;
    if (!page) page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)start & ~(page - 1), stop = (uintptr_t)start + (uintptr_t)count;
    if (count > 0) madvise((void *)first, stop - first, MADV_WILLNEED);
#else
    (void)start, (void)count;
#endif
}

PyObject *tokenreel_announce(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer views[TOKENREEL_REQUEST_VIEWS];
    tokenreel_request q;
    PyObject *result = NULL, *rest;
    Py_ssize_t seq_len;
    if (!tokenreel_take_request(args, views, &q)) return NULL;
    rest = PyTuple_GetSlice(args, TOKENREEL_REQUEST_ARGS, PyTuple_Size(args));
    if (!rest || !PyArg_ParseTuple(rest, "n", &seq_len)) goto done;
    if (seq_len < 1) {
        PyErr_SetString(PyExc_ValueError, "announce: no such rows");
        goto done;
    }
    int64_t missing;
    tokenreel_rows rows;
    Py_BEGIN_ALLOW_THREADS;
    missing = tokenreel_find(&q, seq_len, NULL, &rows);
    for (Py_ssize_t i = 0; i < rows.num_pieces && !missing; i++) {
        const tokenreel_piece *p = &rows.pieces[i];
        announce_bytes(p->tokens, p->length * (p->kind < 0 ? -p->kind : p->kind));
        if (p->stored) announce_bytes(p->stored, p->length * p->stored_bytes);
    }
    Py_END_ALLOW_THREADS;
    result = answer(missing, &rows);
    tokenreel_free_rows(&rows);
done:
    Py_XDECREF(rest);
    tokenreel_release(views, TOKENREEL_REQUEST_VIEWS);
    return result;
}

/* What the targets of a piece weigh; the first token of a row or segment is nobody's target. */
static double weight_of(const tokenreel_piece *p, const tokenreel_span *spans, int64_t from) {
    double total = 0;
    if (!p->weighed) return p->length > from ? (double)(p->length - from) : 0;
    if (p->stored) {
        for (int64_t i = from; i < p->length; i++)
            total += p->stored_bytes == 1 ? (double)((const uint8_t *)p->stored)[i]
                                          : (double)((const float *)p->stored)[i];
        return total;
    }
    for (Py_ssize_t s = p->first_span; s < p->stop_span; s++) {
        int64_t low = spans[s].start > from ? spans[s].start : from;
        int64_t high = spans[s].stop < p->length ? spans[s].stop : p->length;
        if (low < high) total += (double)spans[s].weight * (double)(high - low);
    }
    return total;
}

typedef struct {
    const tokenreel_rows *rows;
    double *weights;
    int64_t *samples;
} weighing;

static void weigh_rows(void *given) {
    const tokenreel_rows *rows = ((weighing *)given)->rows;
    double *weights = ((weighing *)given)->weights;
    int64_t *samples = ((weighing *)given)->samples;
    for (Py_ssize_t r = 0; r < rows->num_rows; r++) {
        double segment = 0, row = 0;
        int64_t count = 0;
        for (Py_ssize_t i = rows->row_offsets[r]; i < rows->row_offsets[r + 1]; i++) {
            const tokenreel_piece *p = &rows->pieces[i];
            if (p->begins) count += segment > 0, segment = 0;
            double weight = weight_of(p, rows->spans, p->begins || i == rows->row_offsets[r]);
            segment += weight;
            row += weight;
        }
        weights[r] = row;
        samples[r] = count + (segment > 0);
    }
}

PyObject *tokenreel_weigh(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer views[TOKENREEL_REQUEST_VIEWS], v[2] = {{0}};
    tokenreel_request q;
    PyObject *result = NULL, *rest;
    Py_ssize_t seq_len;
    if (!tokenreel_take_request(args, views, &q)) return NULL;
    rest = PyTuple_GetSlice(args, TOKENREEL_REQUEST_ARGS, PyTuple_Size(args));
    if (!rest || !PyArg_ParseTuple(rest, "nw*w*", &seq_len, &v[0], &v[1])) goto done;
    if (seq_len < 1 || v[0].len != q.count * 8 || v[1].len != q.count * 8) {
        PyErr_SetString(PyExc_ValueError, "weigh: buffer sizes do not fit");
        goto done;
    }
    int64_t missing;
    tokenreel_rows rows;
    Py_BEGIN_ALLOW_THREADS;
    missing = tokenreel_find(&q, seq_len, NULL, &rows);
    weighing w = {&rows, v[0].buf, v[1].buf};
    if (!missing && (rows.lost = tokenreel_guarded(weigh_rows, &w))) missing = TOKENREEL_LOST;
    Py_END_ALLOW_THREADS;
    result = answer(missing, &rows);
    tokenreel_free_rows(&rows);
done:
    Py_XDECREF(rest);
    tokenreel_release(v, 2);
    tokenreel_release(views, TOKENREEL_REQUEST_VIEWS);
    return result;
}
