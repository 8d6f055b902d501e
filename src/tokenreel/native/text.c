/* Small kernels of the text room.
 *
 * any_within: tell whether any id is a control id. The reference is in text/tokenizers/tokenizer.py.
 * count_newlines: the reference is in text/sources/lines.py.
 */
#include "native.h"

#define IDS_AT_ONCE 4096  /* they are still in the cache for the next run */
#define BYTES_AT_ONCE 224 /* whole vectors, and fewer than a byte can count */

VECTORISED static int any_within(const uint32_t *ids, Py_ssize_t count, uint32_t first,
                                 uint32_t length) {
    uint32_t any = 0;
    for (Py_ssize_t i = 0; i < count; i++) any |= ids[i] - first < length;
    return (int)any;
}

PyObject *tokenreel_any_within(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer ids, runs;
    if (!PyArg_ParseTuple(args, "y*y*", &ids, &runs)) return NULL;
    Py_ssize_t count = ids.len / 4, num_runs = runs.len / 8;
    int found = 0;
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t start = 0; start < count && !found; start += IDS_AT_ONCE) {
        Py_ssize_t some = count - start < IDS_AT_ONCE ? count - start : IDS_AT_ONCE;
        for (Py_ssize_t run = 0; run < num_runs; run++) {
            const uint32_t *bounds = (const uint32_t *)runs.buf + 2 * run;
            found |= any_within((const uint32_t *)ids.buf + start, some, bounds[0], bounds[1]);
        }
    }
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&ids);
    PyBuffer_Release(&runs);
    return PyBool_FromLong(found);
}

/* Counted in bytes, which a vector has many of, and added up before they overflow. */
VECTORISED static Py_ssize_t count_newlines(const uint8_t *data, Py_ssize_t count) {
    Py_ssize_t total = 0;
    for (Py_ssize_t start = 0; start < count; start += BYTES_AT_ONCE) {
        Py_ssize_t stop = count - start < BYTES_AT_ONCE ? count : start + BYTES_AT_ONCE;
        uint8_t found = 0;
        for (Py_ssize_t i = start; i < stop; i++) found += data[i] == '\n';
        total += found;
    }
    return total;
}

PyObject *tokenreel_count_newlines(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer data;
    if (!PyArg_ParseTuple(args, "y*", &data)) return NULL;
    Py_ssize_t found;
    Py_BEGIN_ALLOW_THREADS;
    found = count_newlines(data.buf, data.len);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&data);
    return PyLong_FromSsize_t(found);
}
