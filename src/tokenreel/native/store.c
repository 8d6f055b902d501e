/* Kernels of the store room.
 *
 * narrow: copy token ids of any integer type into uint16 or uint32, checking in
 * the same pass that each lies in [0, limit). narrow_ended: the same for documents that lie end to
 * end, with one more id put behind each. The references are in store/narrow.py.
 *
 * start_writeback: a hint, which changes nothing but when a disk begins its work.
 */
#if defined(__linux__)
#define _GNU_SOURCE
#include <fcntl.h>
#endif

#include "native.h"

/* Ids are read as unsigned numbers of their own width, so that a negative id is a large one and
 * one comparison covers both ends. They are copied a run at a time; a run is judged by its largest
 * id, and only a run that fails is searched for its first culprit. Both loops vectorise. */
#define RUN 4096

/* UNSIGNED: the source's width, unsigned. LARGEST: the largest id the source type can say. */
#define NARROW(NAME, UNSIGNED, LARGEST, TARGET)                                            \
    VECTORISED static Py_ssize_t NAME(const void *from, void *to, Py_ssize_t count,        \
                                      uint64_t limit) {                                    \
        const UNSIGNED *source = from;                                                     \
        TARGET *target = to;                                                               \
        if (limit == 0) return count ? 0 : -1;                                             \
        UNSIGNED last = (UNSIGNED)(limit - 1 < (LARGEST) ? limit - 1 : (LARGEST));         \
        for (Py_ssize_t start = 0; start < count; start += RUN) {                          \
            Py_ssize_t stop = start + RUN < count ? start + RUN : count;                   \
            UNSIGNED most = 0;                                                             \
            for (Py_ssize_t i = start; i < stop; i++) {                                    \
                most = source[i] > most ? source[i] : most;                                \
                target[i] = (TARGET)source[i];                                             \
            }                                                                              \
            if (most > last)                                                               \
                for (Py_ssize_t i = start; i < stop; i++)                                  \
                    if (source[i] > last) return i;                                        \
        }                                                                                  \
        return -1;                                                                         \
    }

NARROW(narrow_u8_u16, uint8_t, (uint64_t)UINT8_MAX, uint16_t)
NARROW(narrow_i8_u16, uint8_t, (uint64_t)INT8_MAX, uint16_t)
NARROW(narrow_u16_u16, uint16_t, (uint64_t)UINT16_MAX, uint16_t)
NARROW(narrow_i16_u16, uint16_t, (uint64_t)INT16_MAX, uint16_t)
NARROW(narrow_u32_u16, uint32_t, (uint64_t)UINT32_MAX, uint16_t)
NARROW(narrow_i32_u16, uint32_t, (uint64_t)INT32_MAX, uint16_t)
NARROW(narrow_u64_u16, uint64_t, (uint64_t)UINT64_MAX, uint16_t)
NARROW(narrow_i64_u16, uint64_t, (uint64_t)INT64_MAX, uint16_t)
NARROW(narrow_u8_u32, uint8_t, (uint64_t)UINT8_MAX, uint32_t)
NARROW(narrow_i8_u32, uint8_t, (uint64_t)INT8_MAX, uint32_t)
NARROW(narrow_u16_u32, uint16_t, (uint64_t)UINT16_MAX, uint32_t)
NARROW(narrow_i16_u32, uint16_t, (uint64_t)INT16_MAX, uint32_t)
NARROW(narrow_u32_u32, uint32_t, (uint64_t)UINT32_MAX, uint32_t)
NARROW(narrow_i32_u32, uint32_t, (uint64_t)INT32_MAX, uint32_t)
NARROW(narrow_u64_u32, uint64_t, (uint64_t)UINT64_MAX, uint32_t)
NARROW(narrow_i64_u32, uint64_t, (uint64_t)INT64_MAX, uint32_t)

typedef Py_ssize_t (*narrow_function)(const void *, void *, Py_ssize_t, uint64_t);

/* kind: 'u' or 'i' with the item size, as numpy writes it ("u2", "i8"). */
static narrow_function choose(const char *kind, int target_itemsize) {
    static const struct {
        const char *kind;
        narrow_function to_u16, to_u32;
    } table[] = {
        {"u1", narrow_u8_u16, narrow_u8_u32},
        {"i1", narrow_i8_u16, narrow_i8_u32},
        {"u2", narrow_u16_u16, narrow_u16_u32},
        {"i2", narrow_i16_u16, narrow_i16_u32},
        {"u4", narrow_u32_u16, narrow_u32_u32},
        {"i4", narrow_i32_u16, narrow_i32_u32},
        {"u8", narrow_u64_u16, narrow_u64_u32},
        {"i8", narrow_i64_u16, narrow_i64_u32},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (kind[0] == table[i].kind[0] && kind[1] == table[i].kind[1] && kind[2] == 0)
            return target_itemsize == 2   ? table[i].to_u16
                   : target_itemsize == 4 ? table[i].to_u32
                                          : NULL;
    return NULL;
}

typedef struct {
    narrow_function run;
    const void *from;
    void *to;
    Py_ssize_t count, first_bad;
    uint64_t limit;
} narrowing;

static void narrow_guarded(void *given) {
    narrowing *n = given;
    n->first_bad = n->run(n->from, n->to, n->count, n->limit);
}

PyObject *tokenreel_narrow(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer source, target;
    const char *kind;
    int target_itemsize;
    unsigned long long limit;
    if (!PyArg_ParseTuple(args, "y*sw*iK", &source, &kind, &target, &target_itemsize, &limit))
        return NULL;
    PyObject *result = NULL;
    narrow_function run = choose(kind, target_itemsize);
    if (run == NULL) {
        PyErr_Format(PyExc_ValueError, "narrow: no kernel from %s to %d bytes", kind,
                     target_itemsize);
        goto done;
    }
    Py_ssize_t itemsize = kind[1] - '0';
    Py_ssize_t count = source.len / itemsize;
    if (source.len % itemsize || target.len / target_itemsize < count) {
        PyErr_SetString(PyExc_ValueError, "narrow: buffer sizes do not fit");
        goto done;
    }
    narrowing n = {run, source.buf, target.buf, count, -1, limit};
    const void *lost;
    Py_BEGIN_ALLOW_THREADS;
    lost = tokenreel_guarded(narrow_guarded, &n); /* ids of another store may be mapped */
    Py_END_ALLOW_THREADS;
    result = lost ? tokenreel_raise_lost(lost) : PyLong_FromSsize_t(n.first_bad);
done:
    PyBuffer_Release(&source);
    PyBuffer_Release(&target);
    return result;
}

PyObject *tokenreel_narrow_ended(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer source, offsets, target;
    const char *kind;
    int target_itemsize;
    unsigned long long limit, end_id;
    if (!PyArg_ParseTuple(args, "y*sy*w*iKK", &source, &kind, &offsets, &target, &target_itemsize,
                          &limit, &end_id))
        return NULL;
    PyObject *result = NULL;
    narrow_function run = choose(kind, target_itemsize);
    if (run == NULL) {
        PyErr_Format(PyExc_ValueError, "narrow_ended: no kernel from %s to %d bytes", kind,
                     target_itemsize);
        goto done;
    }
    Py_ssize_t itemsize = kind[1] - '0';
    Py_ssize_t count = source.len / itemsize, room = target.len / target_itemsize;
    Py_ssize_t documents = offsets.len / (Py_ssize_t)sizeof(int64_t) - 1;
    const int64_t *bounds = offsets.buf;
    if (source.len % itemsize || documents < 0 || room < count + documents) {
        PyErr_SetString(PyExc_ValueError, "narrow_ended: buffer sizes do not fit");
        goto done;
    }
    Py_ssize_t first_bad = -1, document = 0;
    Py_BEGIN_ALLOW_THREADS;
    const char *from = source.buf;
    char *to = target.buf;
    for (; document < documents && first_bad < 0; document++) {
        int64_t start = bounds[document], stop = bounds[document + 1];
        if (start < 0 || stop < start || stop > count) break;
        first_bad = run(from + start * itemsize, to, stop - start, limit);
        if (first_bad >= 0) {
            first_bad += start;
            break;
        }
        to += (stop - start) * target_itemsize;
        if (target_itemsize == 2)
            *(uint16_t *)to = (uint16_t)end_id;
        else
            *(uint32_t *)to = (uint32_t)end_id;
        to += target_itemsize;
    }
    Py_END_ALLOW_THREADS;
    if (document < documents && first_bad < 0)
        PyErr_SetString(PyExc_ValueError, "narrow_ended: offsets point outside the ids");
    else
        result = PyLong_FromSsize_t(first_bad);
done:
    PyBuffer_Release(&source);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&target);
    return result;
}

PyObject *tokenreel_start_writeback(PyObject *self, PyObject *args) {
    (void)self;
    int descriptor;
    if (!PyArg_ParseTuple(args, "i", &descriptor)) return NULL;
#if defined(__linux__)
    Py_BEGIN_ALLOW_THREADS;
    /* What fails here fails again in fsync, which says so. */
    (void)sync_file_range(descriptor, 0, 0, SYNC_FILE_RANGE_WRITE);
    Py_END_ALLOW_THREADS;
#endif
    Py_RETURN_NONE;
}
