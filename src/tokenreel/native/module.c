/* The module table of tokenreel._native. */
#include "native.h"

static PyMethodDef methods[] = {
    {"narrow", tokenreel_narrow, METH_VARARGS,
     "narrow(source, kind, target, target_itemsize, limit) -> index of the first id outside "
     "[0, limit), or -1"},
    {"permute", tokenreel_permute, METH_VARARGS,
     "permute(source, target, length, a, b, keys, backward): int64 positions to rows or back"},
    {"mix", tokenreel_mix, METH_VARARGS,
     "mix(start, ...tables, source, number, counts): rows of positions, and those given after them"},
    {"carry", tokenreel_carry, METH_VARARGS,
     "carry(lengths, shares, keys, given, owed): over changes of shares, one after the other"},
    {"assemble", tokenreel_assemble, METH_VARARGS,
     "assemble(...request, seq_len, pad, threads, ...arrays) -> 0, or what is missing; see "
     "native/assemble.c"},
    {"announce", tokenreel_announce, METH_VARARGS,
     "announce(...request, seq_len) -> the same: have the pages of rows read"},
    {"weigh", tokenreel_weigh, METH_VARARGS,
     "weigh(...request, seq_len, weights, samples) -> the same: what each row weighs"},
    {"gather", tokenreel_gather, METH_VARARGS, 
     "gather(shards, kind, seq_len, pad, label_pad, stored, ...): rows of tokens"},
    {"pack", tokenreel_pack, METH_VARARGS,
     "pack(lengths, capacity, method, row_offsets, order) -> number of rows"},
    {"scan_lines", tokenreel_scan_lines, METH_VARARGS,
     "scan_lines(data, start, text_key, id_key, max_bytes, out, table) -> (rows, lines, end of them)"},
    {"any_within", tokenreel_any_within, METH_VARARGS,
     "any_within(ids, runs) -> whether a uint32 id lies in one of the (first, length)"},
    {"count_newlines", tokenreel_count_newlines, METH_VARARGS,
     "count_newlines(data) -> how many there are"},
    {"start_writeback", tokenreel_start_writeback, METH_VARARGS,
     "start_writeback(descriptor): have the kernel begin to write a file to its disk"},
    {"narrow_ended", tokenreel_narrow_ended, METH_VARARGS,
     "narrow_ended(source, kind, offsets, target, target_itemsize, limit, end_id) -> the same"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, tokenreel_add_mapping}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "tokenreel._native", "Kernels; see tokenreel/native/native.h.", 0,
    methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) {
    if (!tokenreel_prepare_threads()) return PyErr_NoMemory();
    return PyModuleDef_Init(&module);
}
