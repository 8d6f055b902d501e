/* From a position of the run to the pieces of its rows, by the tables of feed/tables.py.
 *
 * position -> source and number (order.c) -> epoch and permuted row -> pieces (lookup.c).
 */
#include "native.h"

#include <stdlib.h>

#define EPOCHS 2 /* permutations at hand: a, b and the keys, of two successive epochs */
#define PERMUTATION (2 + TOKENREEL_ROUNDS)

typedef tokenreel_request request;

static int is_moved(const tokenreel_source *s) { return s->shuffled && s->num_rows > 1; }

/* Numbers of rows through all epochs to rows of their plans. */
static int64_t permute(const request *q, const int32_t *source, int64_t *row) {
    Py_ssize_t num_sources = q->mixture.num_sources;
    tokenreel_permutation *tables = malloc((size_t)num_sources * EPOCHS * sizeof *tables);
    const tokenreel_permutation **chosen = malloc((size_t)(q->count + 1) * sizeof *chosen);
    int64_t missing = tables && chosen ? 0 : TOKENREEL_MEMORY;
    for (Py_ssize_t i = 0; i < num_sources * EPOCHS && !missing; i++) {
        const tokenreel_source *s = &q->sources[i / EPOCHS];
        const uint64_t *p = q->permutations + i * PERMUTATION;
        tables[i] = (tokenreel_permutation){.length = (uint64_t)s->num_rows, .a = p[0], .b = p[1],
                                            .keys = p + 2};
        if (!is_moved(s)) tables[i].a = 0, tables[i].b = 1; /* with these sides nothing moves */
    }
    for (Py_ssize_t i = 0; i < q->count && !missing; i++) {
        const tokenreel_source *s = &q->sources[source[i]];
        int64_t number = row[i] + q->given[source[i]], epoch = number / s->num_rows - s->epoch;
        row[i] = number % s->num_rows;
        if (number >= s->limit) missing = TOKENREEL_OTHERWISE;
        else if (!is_moved(s)) chosen[i] = &tables[source[i] * EPOCHS];
        else if (epoch < 0 || epoch >= EPOCHS) missing = TOKENREEL_EPOCH;
        else chosen[i] = &tables[source[i] * EPOCHS + epoch];
    }
    if (!missing) tokenreel_permute_rows((uint64_t *)row, chosen, q->count);
    free(tables);
    free(chosen);
    return missing;
}

static int64_t locate(const request *q, int32_t *source, int64_t *row) {
    if (q->mixture.num_sources == 1)
        for (Py_ssize_t i = 0; i < q->count; i++) source[i] = 0, row[i] = q->start + i;
    else if (!tokenreel_mix_rows(&q->mixture, q->start, q->count, source, row))
        return TOKENREEL_MEMORY;
    return permute(q, source, row);
}

/* Find the pieces of the rows that are asked for; `rows` is to be freed in any case. */
int64_t tokenreel_find(const request *q, Py_ssize_t seq_len, tokenreel_rows *rows) {
    /* Zeros, so that not even a mixture that makes no sense leads to a source that is none. */
    int32_t *source = calloc((size_t)q->count + 1, sizeof *source);
    int64_t *row = calloc((size_t)q->count + 1, sizeof *row), missing = TOKENREEL_MEMORY;
    *rows = (tokenreel_rows){0};
    if (source && row && tokenreel_allocate_rows(rows, q->count)) missing = locate(q, source, row);
    if (!missing) missing = tokenreel_look_up(q->sources, q->shards, source, row, seq_len, rows);
    free(source);
    free(row);
    return missing;
}

enum { SOURCES, SHARDS, PERMUTATIONS, GIVEN, STARTS, SHARES, SLOPES, TOTALS, KEYS };
#define NUM_TABLES TOKENREEL_TABLES

void tokenreel_release(Py_buffer *views, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++)
        if (views[i].obj) PyBuffer_Release(&views[i]);
}

/* Take start and tables from the first arguments of a kernel; 0 with an error if they do not fit. */
int tokenreel_take_tables(PyObject *args, Py_buffer *v, request *q) {
    PyObject *start = PyTuple_GetItem(args, 0);
    q->start = start ? PyLong_AsLongLong(start) : -1;
    if (PyErr_Occurred()) return 0;
    for (int i = 0; i < NUM_TABLES; i++) {
        PyObject *table = PyTuple_GetItem(args, 1 + i);
        if (!table || PyObject_GetBuffer(table, &v[i], PyBUF_SIMPLE)) {
            tokenreel_release(v, i);
            return 0;
        }
    }
    Py_ssize_t num_sources = v[SOURCES].len / (Py_ssize_t)sizeof(tokenreel_source);
    Py_ssize_t segments = v[STARTS].len / 8, cells = segments * num_sources * 8;
    if (q->start < 0 || num_sources < 1 || segments < 1 ||
        v[SOURCES].len != num_sources * (Py_ssize_t)sizeof(tokenreel_source) ||
        v[SHARDS].len % (Py_ssize_t)sizeof(tokenreel_shard) ||
        v[PERMUTATIONS].len != num_sources * EPOCHS * PERMUTATION * 8 ||
        v[GIVEN].len != num_sources * 8 || v[SHARES].len != cells || v[SLOPES].len != cells ||
        v[TOTALS].len != cells || v[KEYS].len != num_sources * 8) {
        PyErr_SetString(PyExc_ValueError, "the tables of a feed do not fit together");
        tokenreel_release(v, NUM_TABLES);
        return 0;
    }
    q->sources = v[SOURCES].buf, q->shards = v[SHARDS].buf, q->permutations = v[PERMUTATIONS].buf;
    q->given = v[GIVEN].buf;
    q->mixture = (tokenreel_mixture){.num_segments = segments, .num_sources = num_sources,
                                     .starts = v[STARTS].buf, .shares = v[SHARES].buf,
                                     .slopes = v[SLOPES].buf, .totals = v[TOTALS].buf,
                                     .keys = v[KEYS].buf};
    return 1;
}
