/* Kernels of the order room.
 *
 * permute: a keyed permutation of [0, length) by a Feistel network with cycle-walking.
 * The reference, and the explanation, is order/permutation.py.
 */
#include "native.h"

#define ROUNDS 8

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
