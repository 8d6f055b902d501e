/* tokenreel._native: what every kernel file shares.
 *
 * Kernels take buffers (never numpy objects), check every size before the loop,
 * and release the GIL inside it. One file per room: store.c, ...
 */
#ifndef TOKENREEL_NATIVE_H
#define TOKENREEL_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* store.c */
PyObject *tokenreel_narrow(PyObject *self, PyObject *args);

/* order.c: a permutation of [0, length); a * b >= length, eight round keys */
typedef struct {
    uint64_t length, a, b;
    const uint64_t *keys;
} tokenreel_permutation;

uint64_t tokenreel_permute_one(uint64_t value, const tokenreel_permutation *p, int backward);
PyObject *tokenreel_permute(PyObject *self, PyObject *args);
PyObject *tokenreel_mix(PyObject *self, PyObject *args);

/* feed.c */
PyObject *tokenreel_gather(PyObject *self, PyObject *args);

/* windows.c: kind is the item size of the tokens, negative if they are signed */
void tokenreel_widen(const char *from, int kind, int64_t *to, Py_ssize_t count);
PyObject *tokenreel_windows(PyObject *self, PyObject *args);

/* Loops that profit from wider vectors get a second version, chosen when the module is loaded. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define VECTORISED __attribute__((target_clones("avx2", "default")))
#else
#define VECTORISED
#endif

/* rows.c */
PyObject *tokenreel_pack(PyObject *self, PyObject *args);

#endif
