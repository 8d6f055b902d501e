/* Kernels of the order room.
 *
 * permute: a keyed permutation of [0, length) by a Feistel network with cycle-walking.
 * The reference, and the explanation, is order/permutation.py.
 * mix: the sources and rows of consecutive positions; see order/mixture.py. Compiled without
 * contraction of floating-point operations, so that it gives the very numbers numpy gives.
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

typedef tokenreel_mixture mixture;

/* When a row of a source falls due. */
static double due(const mixture *m, Py_ssize_t s, int64_t row) {
    uint64_t mixed = ((uint64_t)row + m->keys[s]) * UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    mixed ^= mixed >> 31;
    double target = (double)row + (0.25 + (double)(mixed >> 11) * 0x1p-54);
    Py_ssize_t k = m->num_segments - 1;
    while (k > 0 && m->totals[k * m->num_sources + s] > target) k--;
    double share = m->shares[k * m->num_sources + s], slope = m->slopes[k * m->num_sources + s];
    if (share == 0 && slope == 0) return INFINITY;
    double rest = target - m->totals[k * m->num_sources + s];
    if (!(rest > 0)) return m->starts[k];
    double square = share * share + 2.0 * slope * rest;
    double root = sqrt(square > 0 ? square : 0.0);
    return m->starts[k] + (2.0 * rest) / (share + root);
}

/* How many rows of a source fall due before a time. */
static int64_t count_before(const mixture *m, Py_ssize_t s, double time) {
    Py_ssize_t k = m->num_segments - 1;
    while (k > 0 && m->starts[k] > time) k--;
    double elapsed = time - m->starts[k];
    double share = m->shares[k * m->num_sources + s], slope = m->slopes[k * m->num_sources + s];
    double total = m->totals[k * m->num_sources + s];
    int64_t row = (int64_t)floor(total + elapsed * (share + 0.5 * slope * elapsed));
    if (row < 0) row = 0;
    return row + (due(m, s, row) < time);
}

static void mix(const mixture *m, int64_t start, Py_ssize_t count, int64_t *row, double *next,
                int32_t *source, int64_t *number) {
    double time = start > m->num_sources ? (double)(start - m->num_sources) : 0.0;
    int64_t position = 0;
    for (Py_ssize_t s = 0; s < m->num_sources; s++) {
        row[s] = count_before(m, s, time);
        next[s] = due(m, s, row[s]);
        position += row[s];
    }
    for (; position < start + count; position++) {
        Py_ssize_t first = 0;
        for (Py_ssize_t s = 1; s < m->num_sources; s++)
            if (next[s] < next[first]) first = s;
        if (position >= start) {
            source[position - start] = (int32_t)first;
            number[position - start] = row[first];
        }
        row[first]++;
        next[first] = due(m, first, row[first]);
    }
}

/* Source and number of the rows at `count` positions from `start` on; 0 without memory. */
int tokenreel_mix_rows(const mixture *m, int64_t start, Py_ssize_t count, int32_t *source,
                       int64_t *number) {
    int64_t *row = malloc((size_t)m->num_sources * sizeof *row);
    double *next = malloc((size_t)m->num_sources * sizeof *next);
    int enough = row && next;
    if (enough) mix(m, start, count, row, next, source, number);
    free(row);
    free(next);
    return enough;
}

PyObject *tokenreel_mix(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer b[7]; /* starts, shares, slopes, totals, keys, source, number */
    long long start;
    if (!PyArg_ParseTuple(args, "Ly*y*y*y*y*w*w*", &start, &b[0], &b[1], &b[2], &b[3], &b[4], &b[5],
                          &b[6]))
        return NULL;
    PyObject *result = NULL;
    mixture m = {.num_segments = b[0].len / 8, .num_sources = b[4].len / 8, .starts = b[0].buf,
                 .shares = b[1].buf, .slopes = b[2].buf, .totals = b[3].buf, .keys = b[4].buf};
    Py_ssize_t cells = m.num_segments * m.num_sources * 8, count = b[6].len / 8;
    if (start < 0 || m.num_segments < 1 || m.num_sources < 1 || b[1].len != cells ||
        b[2].len != cells || b[3].len != cells || b[5].len != count * 4) {
        PyErr_SetString(PyExc_ValueError, "mix: buffer sizes do not fit");
        goto done;
    }
    int enough;
    Py_BEGIN_ALLOW_THREADS;
    enough = tokenreel_mix_rows(&m, start, count, b[5].buf, b[6].buf);
    Py_END_ALLOW_THREADS;
    if (enough)
        result = Py_NewRef(Py_None);
    else
        PyErr_NoMemory();
done:
    for (int i = 0; i < 7; i++) PyBuffer_Release(&b[i]);
    return result;
}
