/* The module table of tokenreel._native. */
#include "native.h"

static PyMethodDef methods[] = {
    {"narrow", tokenreel_narrow, METH_VARARGS,
     "narrow(source, kind, target, target_itemsize, limit) -> index of the first id outside "
     "[0, limit), or -1"},
    {"permute", tokenreel_permute, METH_VARARGS,
     "permute(source, target, length, a, b, keys, backward): int64 positions to rows or back"},
    {"mix", tokenreel_mix, METH_VARARGS,
     "mix(start, starts, shares, slopes, totals, keys, source, number): rows of positions"},
    {"windows", tokenreel_windows, METH_VARARGS,
     "windows(shards, bounds, table, permutations, source, number, seq_len, inputs, labels) -> 0, "
     "or what is missing; see native/windows.c"},
    {"gather", tokenreel_gather, METH_VARARGS, "gather(shards, kind, seq_len, pad, ...): rows of tokens"},
    {"pack", tokenreel_pack, METH_VARARGS,
     "pack(lengths, capacity, method, row_offsets, order) -> number of rows"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "tokenreel._native", "Kernels; see tokenreel/native/native.h.", 0,
    methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
