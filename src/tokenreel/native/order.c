/* Kernels of the order room.
 *
 * permute: a keyed permutation of [0, length) by a Feistel network with cycle-walking.
 * The reference, and the explanation, is order/permutation.py.
 * mix: the sources and rows of consecutive positions; carry: what sources are owed over changes of
 * their shares; see order/mixture.py. Compiled without contraction of floating-point operations, so
 * that they give the very numbers numpy gives. The deal of a step's rows is order/deal.py's.
 */
#include "native.h"

#include <math.h>
#include <stdlib.h>

#define ROUNDS TOKENREEL_ROUNDS

static inline uint64_t round_of(uint64_t half, uint64_t key, uint64_t size) {
    uint64_t mixed = (half ^ key) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 32)) * UINT64_C(0x94D049BB133111EB);
    mixed ^= mixed >> 29;
    return ((mixed >> 32) * size) >> 32;
}

static inline uint64_t add(uint64_t half, uint64_t amount, uint64_t size) {
    uint64_t total = half + amount;
    return total >= size ? total - size : total;
}

uint64_t tokenreel_permute_one(uint64_t value, const tokenreel_permutation *p, int backward) {
    do {
        uint64_t left = value / p->b, right = value % p->b;
        if (!backward) {
            for (int i = 0; i < ROUNDS; i += 2) {
                left = add(left, round_of(right, p->keys[i], p->a), p->a);
                right = add(right, round_of(left, p->keys[i + 1], p->b), p->b);
            }
        } else {
            for (int i = ROUNDS - 2; i >= 0; i -= 2) {
                right = add(right, p->b - round_of(left, p->keys[i + 1], p->b), p->b);
                left = add(left, p->a - round_of(right, p->keys[i], p->a), p->a);
            }
        }
        value = left * p->b + right;
    } while (value >= p->length);
    return value;
}

/* The same forward, for LANES values at a time: a round waits for the one before it, and meanwhile
 * the processor works on the others. */
#define LANES 4

void tokenreel_permute_rows(uint64_t *values, const tokenreel_permutation *const *p, Py_ssize_t count) {
    Py_ssize_t at = 0;
    for (; at + LANES <= count; at += LANES) {
        const tokenreel_permutation *const *q = p + at;
        uint64_t left[LANES], right[LANES];
        for (int k = 0; k < LANES; k++) {
            left[k] = values[at + k] / q[k]->b;
            right[k] = values[at + k] % q[k]->b;
        }
        for (int i = 0; i < ROUNDS; i += 2) {
            for (int k = 0; k < LANES; k++)
                left[k] = add(left[k], round_of(right[k], q[k]->keys[i], q[k]->a), q[k]->a);
            for (int k = 0; k < LANES; k++)
                right[k] = add(right[k], round_of(left[k], q[k]->keys[i + 1], q[k]->b), q[k]->b);
        }
        for (int k = 0; k < LANES; k++) {
            uint64_t value = left[k] * q[k]->b + right[k];
            values[at + k] = value < q[k]->length ? value : tokenreel_permute_one(value, q[k], 0);
        }
    }
    for (; at < count; at++) values[at] = tokenreel_permute_one(values[at], p[at], 0);
}

PyObject *tokenreel_permute(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer source, target, keys;
    tokenreel_permutation p;
    unsigned long long length, a, b;
    int backward;
    if (!PyArg_ParseTuple(args, "y*w*KKKy*p", &source, &target, &length, &a, &b, &keys, &backward))
        return NULL;
    PyObject *result = NULL;
    if (source.len % 8 || target.len != source.len || keys.len != ROUNDS * 8) {
        PyErr_SetString(PyExc_ValueError, "permute: buffer sizes do not fit");
        goto done;
    }
    if (length == 0 || a == 0 || b == 0 || a > UINT32_MAX || b > UINT32_MAX || a * b < length) {
        PyErr_SetString(PyExc_ValueError, "permute: sides do not cover the length");
        goto done;
    }
    p = (tokenreel_permutation){.length = length, .a = a, .b = b, .keys = keys.buf};
    const uint64_t *from = source.buf;
    uint64_t *to = target.buf;
    Py_ssize_t count = source.len / 8;
    uint64_t most = 0;
    for (Py_ssize_t i = 0; i < count; i++) most = from[i] > most ? from[i] : most;
    if (most >= length && count) { /* it might be walked in circles for ever */
        PyErr_SetString(PyExc_ValueError, "permute: a value is not below the length");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t i = 0; i < count; i++) to[i] = tokenreel_permute_one(from[i], &p, backward);
    Py_END_ALLOW_THREADS;
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&source);
    PyBuffer_Release(&target);
    PyBuffer_Release(&keys);
    return result;
}

void tokenreel_deal(uint64_t key, uint64_t step, Py_ssize_t num_rows, int64_t *rows) {
    uint64_t of_step = tokenreel_scramble(step, key);
    for (Py_ssize_t seat = 0; seat < num_rows; seat++) rows[seat] = seat;
    for (Py_ssize_t seat = num_rows - 1; seat > 0; seat--) {
        uint64_t hashed = tokenreel_scramble((uint64_t)seat, of_step), size = (uint64_t)seat + 1;
        uint64_t other = ((hashed >> 32) * size + (((hashed & UINT32_MAX) * size) >> 32)) >> 32;
        int64_t row = rows[seat];
        rows[seat] = rows[other];
        rows[other] = row;
    }
}

typedef tokenreel_mixture mixture;

/* The last of the segments whose start, or total, is not after a value; `stride` lies between them. */
static Py_ssize_t segment_at(const double *values, Py_ssize_t count, Py_ssize_t stride, double value) {
    Py_ssize_t low = 0, high = count;
    while (high - low > 1) {
        Py_ssize_t middle = (low + high) / 2;
        if (values[middle * stride] <= value) low = middle;
        else high = middle;
    }
    return low;
}

/* When a row of a source falls due; rows are counted from the first that is not given yet. */
static double due(const mixture *m, Py_ssize_t s, int64_t row) {
    uint64_t hashed = tokenreel_scramble((uint64_t)(row + m->given[s]), m->keys[s]) >> 11;
    double target = (double)row + (m->offset[s] + (double)hashed * m->width[s]);
    Py_ssize_t cell = segment_at(m->totals + s, m->num_segments, m->num_sources, target);
    double start = m->starts[cell];
    cell = cell * m->num_sources + s;
    double share = m->shares[cell], slope = m->slopes[cell], rest = target - m->totals[cell];
    if (slope == 0) return share == 0 ? INFINITY : start + rest / share;
    if (!(rest > 0)) return start;
    double square = share * share + 2.0 * slope * rest;
    double root = sqrt(square > 0 ? square : 0.0);
    return start + (2.0 * rest) / (share + root);
}

/* A source whose next row falls due at a time. */
typedef struct {
    double time;
    int64_t row;
    Py_ssize_t source;
} waiting;

/* The first row of a source that does not fall due before a time. */
static waiting first_from(const mixture *m, Py_ssize_t s, double time) {
    Py_ssize_t k = segment_at(m->starts, m->num_segments, 1, time), cell = k * m->num_sources + s;
    double elapsed = time - m->starts[k], share = m->shares[cell], slope = m->slopes[cell];
    /* What is owed is in the offset, but for a margin that does not matter here. */
    double about = m->totals[cell] + elapsed * (share + 0.5 * slope * elapsed) - m->offset[s];
    waiting w = {.source = s, .row = about > 0 ? (int64_t)about : 0};
    while (w.row > 0 && !(due(m, s, w.row - 1) < time)) w.row--;
    while ((w.time = due(m, s, w.row)) < time) w.row++;
    return w;
}

static int is_earlier(const waiting *one, const waiting *other) {
    return one->time < other->time || (one->time == other->time && one->source < other->source);
}

/* Let the item at a place of a heap sink until none below it is earlier. */
static void sink(waiting *heap, Py_ssize_t size, Py_ssize_t place) {
    waiting item = heap[place];
    for (Py_ssize_t child; (child = 2 * place + 1) < size; place = child) {
        if (child + 1 < size && is_earlier(&heap[child + 1], &heap[child])) child++;
        if (!is_earlier(&heap[child], &item)) break;
        heap[place] = heap[child];
    }
    heap[place] = item;
}

/* Source and number of the rows at `count` positions from `start` on, and how many rows each source
 * has given by then unless `counts` is NULL; 0 without memory. */
int tokenreel_mix_rows(const mixture *m, int64_t start, Py_ssize_t count, int32_t *source,
                       int64_t *number, int64_t *counts) {
    Py_ssize_t size = m->num_sources;
    waiting *heap = malloc((size_t)size * sizeof *heap);
    if (!heap) return 0;
    /* Times deviate from positions by about the root of the number of sources, seldom by more. */
    int64_t position = INT64_MAX;
    for (double reach = 4.0 * sqrt((double)size); position > start; reach *= 2) {
        double time = (double)start - reach;
        position = 0;
        for (Py_ssize_t s = 0; s < size; s++) {
            heap[s] = time > 0 ? first_from(m, s, time) : (waiting){.time = due(m, s, 0), .source = s};
            position += heap[s].row;
        }
    }
    for (Py_ssize_t place = size / 2; place-- > 0;) sink(heap, size, place);
    for (; position < start + count; position++) {
        waiting *first = &heap[0];
        if (position >= start) {
            source[position - start] = (int32_t)first->source;
            number[position - start] = first->row + m->given[first->source];
        }
        first->time = due(m, first->source, ++first->row);
        sink(heap, size, 0);
    }
    for (Py_ssize_t place = 0; counts && place < size; place++)
        counts[heap[place].source] = heap[place].row + m->given[heap[place].source];
    free(heap);
    return 1;
}

int tokenreel_take_mixture(const Py_buffer *v, mixture *m) {
    enum { STARTS, SHARES, SLOPES, TOTALS, KEYS, GIVEN, OFFSET, WIDTH };
    Py_ssize_t segments = v[STARTS].len / 8, sources = v[KEYS].len / 8, cells = segments * sources * 8;
    *m = (mixture){.num_segments = segments, .num_sources = sources, .starts = v[STARTS].buf,
                   .shares = v[SHARES].buf, .slopes = v[SLOPES].buf, .totals = v[TOTALS].buf,
                   .keys = v[KEYS].buf, .given = v[GIVEN].buf, .offset = v[OFFSET].buf,
                   .width = v[WIDTH].buf};
    return segments >= 1 && sources >= 1 && v[STARTS].len % 8 == 0 && v[KEYS].len % 8 == 0 &&
           v[SHARES].len == cells && v[SLOPES].len == cells &&
           v[TOTALS].len == cells && v[GIVEN].len == sources * 8 && v[OFFSET].len == sources * 8 &&
           v[WIDTH].len == sources * 8;
}

PyObject *tokenreel_mix(PyObject *self, PyObject *args) {
    (void)self;
    enum { SOURCE = TOKENREEL_MIXTURE_TABLES, NUMBER, COUNTS, NUM_VIEWS };
    Py_buffer v[NUM_VIEWS] = {{0}};
    PyObject *result = NULL, *given[3];
    long long start;
    if (!PyArg_ParseTuple(args, "Ly*y*y*y*y*y*y*y*OOO", &start, &v[0], &v[1], &v[2], &v[3], &v[4],
                          &v[5], &v[6], &v[7], &given[0], &given[1], &given[2]))
        return NULL;
    for (int i = 0; i < 3; i++)
        if (given[i] != Py_None && PyObject_GetBuffer(given[i], &v[SOURCE + i], PyBUF_WRITABLE))
            goto done;
    mixture m;
    Py_ssize_t count = v[NUMBER].len / 8;
    if (!tokenreel_take_mixture(v, &m) || start < 0 || v[SOURCE].len != count * 4 ||
        v[NUMBER].len != count * 8 || (v[COUNTS].buf && v[COUNTS].len != m.num_sources * 8)) {
        PyErr_SetString(PyExc_ValueError, "mix: buffer sizes do not fit");
        goto done;
    }
    int enough;
    Py_BEGIN_ALLOW_THREADS;
    enough = tokenreel_mix_rows(&m, start, count, v[SOURCE].buf, v[NUMBER].buf, v[COUNTS].buf);
    Py_END_ALLOW_THREADS;
    if (enough)
        result = Py_NewRef(Py_None);
    else
        PyErr_NoMemory();
done:
    tokenreel_release(v, NUM_VIEWS);
    return result;
}

/* Constant shares one after the other: what each source has given and is owed behind each of them.
 * The reference is order/mixture.py's carry_over; returns 0 without memory. */
static int carry(Py_ssize_t num_changes, Py_ssize_t num_sources, const int64_t *lengths,
                 const double *shares, const uint64_t *keys, int64_t *given, double *owed) {
    const double zero = 0;
    double *offset = malloc((size_t)num_sources * sizeof *offset);
    double *width = malloc((size_t)num_sources * sizeof *width);
    double *zeros = calloc((size_t)num_sources, sizeof *zeros);
    int enough = offset && width && zeros;
    for (Py_ssize_t e = 0; e < num_changes && enough; e++) {
        int64_t *before = given + e * num_sources, *after = before + num_sources;
        double *debt = owed + e * num_sources;
        for (Py_ssize_t s = 0; s < num_sources; s++) {
            double margin = shares[e * num_sources + s] * TOKENREEL_MARGIN;
            offset[s] = margin - debt[s];
            width[s] = (1.0 - 2.0 * margin) * 0x1p-53;
        }
        mixture m = {.num_segments = 1, .num_sources = num_sources, .starts = &zero,
                     .shares = shares + e * num_sources, .slopes = zeros, .totals = zeros,
                     .keys = keys, .given = before, .offset = offset, .width = width};
        enough = tokenreel_mix_rows(&m, lengths[e], 0, NULL, NULL, after);
        for (Py_ssize_t s = 0; s < num_sources && enough; s++) {
            double due = (double)lengths[e] * m.shares[s];
            debt[num_sources + s] = debt[s] + (due - (double)(after[s] - before[s]));
        }
    }
    free(offset);
    free(width);
    free(zeros);
    return enough;
}

PyObject *tokenreel_carry(PyObject *self, PyObject *args) {
    (void)self;
    enum { LENGTHS, SHARES, KEYS, GIVEN, OWED, NUM_VIEWS };
    Py_buffer v[NUM_VIEWS] = {{0}};
    if (!PyArg_ParseTuple(args, "y*y*y*w*w*", &v[0], &v[1], &v[2], &v[3], &v[4])) return NULL;
    PyObject *result = NULL;
    Py_ssize_t changes = v[LENGTHS].len / 8, sources = v[KEYS].len / 8;
    if (sources < 1 || v[LENGTHS].len % 8 || v[SHARES].len != changes * sources * 8 ||
        v[GIVEN].len != (changes + 1) * sources * 8 || v[OWED].len != v[GIVEN].len) {
        PyErr_SetString(PyExc_ValueError, "carry: buffer sizes do not fit");
        goto done;
    }
    int enough;
    Py_BEGIN_ALLOW_THREADS;
    enough = carry(changes, sources, v[LENGTHS].buf, v[SHARES].buf, v[KEYS].buf, v[GIVEN].buf, v[OWED].buf);
    Py_END_ALLOW_THREADS;
    if (enough)
        result = Py_NewRef(Py_None);
    else
        PyErr_NoMemory();
done:
    tokenreel_release(v, NUM_VIEWS);
    return result;
}
