/* Files in memory: `Mapping(path)` has the buffer protocol and no descriptor.
 *
 * The file is opened, mapped and closed again, so that a store of any number of shards takes no
 * descriptor; it is unmapped when the last array over it is gone. All mappings are known, so that a
 * page that is lost (guard.c) can be told by its file's name and offset.
 */
#if defined(__linux__)
#define _DEFAULT_SOURCE /* O_CLOEXEC, mmap */
#endif
#include "native.h"

#if defined(__unix__) || defined(__APPLE__)
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct mapping {
    PyObject_HEAD
    PyObject *path; /* as bytes */
    char *start;    /* NULL: an empty file */
    Py_ssize_t count;
    struct mapping *previous, *next;
} mapping;

static mapping *newest; /* of all that live; the lock is Python's */

static int open_file(const char *path) {
    int descriptor;
    do descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for a writer */
    while (descriptor < 0 && errno == EINTR);
    return descriptor;
}

/* Map a file as large as it is; 0, or what went wrong. */
static int map_file(const char *path, char **start, Py_ssize_t *count) {
    struct stat found;
    int descriptor = open_file(path), problem = 0;
    if (descriptor < 0) return errno;
    if (fstat(descriptor, &found)) problem = errno;
    else if (!S_ISREG(found.st_mode)) problem = S_ISDIR(found.st_mode) ? EISDIR : EINVAL;
    else if (found.st_size > 0) {
        void *memory = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_SHARED, descriptor, 0);
        if (memory == MAP_FAILED) problem = errno;
        else *start = memory, *count = (Py_ssize_t)found.st_size;
    }
    close(descriptor);
    return problem;
}

static PyObject *new_mapping(PyTypeObject *type, PyObject *args, PyObject *named) {
    PyObject *path = NULL;
    if (named && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "Mapping(path)");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path)) return NULL;
    char *start = NULL;
    Py_ssize_t count = 0;
    const char *name = PyBytes_AsString(path);
    int problem;
    Py_BEGIN_ALLOW_THREADS;
    problem = map_file(name, &start, &count);
    Py_END_ALLOW_THREADS;
    mapping *self = NULL;
    if (problem) {
        errno = problem;
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, name);
    } else {
        allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
        self = (mapping *)allocate(type, 0);
        if (!self && start) munmap(start, (size_t)count);
    }
    if (!self) {
        Py_DECREF(path);
        return NULL;
    }
    self->path = path, self->start = start, self->count = count;
    self->next = newest;
    if (newest) newest->previous = self;
    newest = self;
    tokenreel_set_guard();
    return (PyObject *)self;
}

static void free_mapping(PyObject *object) {
    mapping *self = (mapping *)object;
    if (self->previous) self->previous->next = self->next;
    else if (newest == self) newest = self->next;
    if (self->next) self->next->previous = self->previous;
    if (self->start) munmap(self->start, (size_t)self->count);
    Py_XDECREF(self->path);
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static int get_buffer(PyObject *object, Py_buffer *view, int flags) {
    mapping *self = (mapping *)object;
    char *start = self->start ? self->start : "";
    return PyBuffer_FillInfo(view, object, start, self->count, 1, flags);
}

static PyType_Slot slots[] = {
    {Py_tp_doc, "Mapping(path): a file in memory, read-only; holds no descriptor"},
    {Py_tp_new, new_mapping},
    {Py_tp_dealloc, free_mapping},
    {Py_bf_getbuffer, get_buffer},
    {0, NULL},
};

static PyType_Spec spec = {"tokenreel._native.Mapping", sizeof(mapping), 0, Py_TPFLAGS_DEFAULT, slots};

int tokenreel_add_mapping(PyObject *module) {
    PyObject *type = PyType_FromSpec(&spec);
    if (!type) return -1;
    int failed = PyModule_AddObjectRef(module, "Mapping", type);
    Py_DECREF(type);
    return failed;
}

static const mapping *mapping_of(const char *address) {
    const mapping *found = newest;
    while (found && (address < found->start || address >= found->start + found->count))
        found = found->next;
    return found;
}

/* Raise what tokenreel.native.lost_page makes of the file, the offset and the size it had. */
PyObject *tokenreel_raise_lost(const void *address) {
    const mapping *found = mapping_of(address);
    PyObject *native = PyImport_ImportModule("tokenreel.native");
    PyObject *path = found ? PyUnicode_DecodeFSDefault(PyBytes_AsString(found->path)) : Py_NewRef(Py_None);
    Py_ssize_t offset = found ? (const char *)address - found->start : 0, count = found ? found->count : 0;
    PyObject *error = native && path ? PyObject_CallMethod(native, "lost_page", "Onn", path, offset, count)
                                     : NULL;
    if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_XDECREF(path);
    Py_XDECREF(native);
    return NULL;
}
#else
int tokenreel_add_mapping(PyObject *module) {
    (void)module;
    return 0;
}

PyObject *tokenreel_raise_lost(const void *address) {
    (void)address;
    return NULL;
}
#endif
