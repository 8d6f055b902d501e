/* From a step of the run to the pieces of its rows, by the tables of feed/kernel_tables.py.
 *
 * seat -> position (the deal) -> source and number (order.c) -> epoch and permuted row -> pieces
 * (lookup.c).
 */
#include "native.h"

#include <stdlib.h>

#define EPOCHS 2 /* permutations at hand: a, b and the keys, of two successive epochs */
#define PERMUTATION (2 + TOKENREEL_ROUNDS)

typedef tokenreel_request request;

/* Positions of the rows in the seats that are asked for, counted from the step's first; padding
 * gets 0. */
static int64_t deal(const request *q, int64_t *position) {
    int64_t *rows = NULL;
    if (q->deal && !(rows = malloc((size_t)(q->num_rows + 1) * sizeof *rows))) return TOKENREEL_MEMORY;
    if (rows) tokenreel_deal(*q->deal, q->step, q->num_rows, rows);
    for (Py_ssize_t i = 0; i < q->count; i++) {
        int64_t seat = q->seats[i];
        position[i] = seat < 0 || seat >= q->num_rows ? 0 : rows ? rows[seat] : seat;
    }
    free(rows);
    return 0;
}

/* Source and number, through all epochs, of the rows at these positions. */
static int64_t mix(const request *q, int32_t *source, int64_t *row) {
    if (q->mixture.num_sources == 1) {
        for (Py_ssize_t i = 0; i < q->count; i++)
            source[i] = 0, row[i] += q->start + q->mixture.given[0];
        return 0;
    }
    /* A few rows of a large step are found one by one: each takes the rows due around it. */
    double each = 4.0 * (double)q->mixture.num_sources + 16.0;
    int enough = 1;
    if (each * (double)q->count < (double)q->num_rows) {
        for (Py_ssize_t i = 0; i < q->count && enough; i++)
            enough = tokenreel_mix_rows(&q->mixture, q->start + row[i], 1, &source[i], &row[i], NULL);
        return enough ? 0 : TOKENREEL_MEMORY;
    }
    size_t size = (size_t)q->num_rows + 1;
    int32_t *sources = malloc(size * sizeof *sources);
    int64_t *numbers = malloc(size * sizeof *numbers);
    enough = sources && numbers &&
             tokenreel_mix_rows(&q->mixture, q->start, q->num_rows, sources, numbers, NULL);
    for (Py_ssize_t i = 0; i < q->count && enough && q->num_rows; i++) {
        int64_t position = row[i];
        source[i] = sources[position], row[i] = numbers[position];
    }
    free(sources);
    free(numbers);
    return enough ? 0 : TOKENREEL_MEMORY;
}

/* Numbers of rows through all epochs to rows of their plans. */
static int64_t permute(const request *q, const int32_t *source, int64_t *row) {
    tokenreel_permutation *tables = malloc((size_t)(q->count + 1) * sizeof *tables);
    const tokenreel_permutation **chosen = malloc((size_t)(q->count + 1) * sizeof *chosen);
    int64_t missing = tables && chosen ? 0 : TOKENREEL_MEMORY;
    for (Py_ssize_t i = 0; i < q->count && !missing; i++) {
        const tokenreel_source *s = &q->sources[source[i]];
        int64_t number = row[i], epoch = number / s->num_rows - s->epoch;
        int is_moved = s->shuffled && s->num_rows > 1;
        if (number >= s->limit) missing = TOKENREEL_OTHERWISE;
        else if (is_moved && (epoch < 0 || epoch >= EPOCHS)) missing = TOKENREEL_EPOCH;
        if (missing) break;
        const uint64_t *p = q->permutations + (source[i] * EPOCHS + (is_moved ? epoch : 0)) * PERMUTATION;
        row[i] = number % s->num_rows;
        tables[i] = (tokenreel_permutation){.length = (uint64_t)s->num_rows, .a = p[0], .b = p[1],
                                            .keys = p + 2};
        if (!is_moved) tables[i].a = 0, tables[i].b = 1; /* with these sides nothing moves */
        chosen[i] = &tables[i];
    }
    if (!missing) tokenreel_permute_rows((uint64_t *)row, chosen, q->count);
    free(tables);
    free(chosen);
    return missing;
}

static int64_t locate(const request *q, int32_t *source, int64_t *row) {
    int64_t missing = deal(q, row);
    if (!missing) missing = mix(q, source, row);
    if (!missing) missing = permute(q, source, row);
    for (Py_ssize_t i = 0; i < q->count; i++)
        if (q->seats[i] < 0 || q->seats[i] >= q->num_rows) source[i] = TOKENREEL_NO_SOURCE;
    return missing;
}

typedef struct {
    const request *q;
    const int32_t *source;
    const int64_t *row;
    Py_ssize_t seq_len;
    tokenreel_rows *rows; /* all that is allocated meanwhile is kept here */
    int64_t missing;
} lookup;

static void look_up(void *given) {
    lookup *l = given;
    l->missing = tokenreel_look_up(l->q->sources, l->q->shards, l->source, l->row, l->seq_len, l->rows);
}

/* Find the pieces of the rows that are asked for, and their sources unless that is NULL; `rows` is to
 * be freed in any case. */
int64_t tokenreel_find(const request *q, Py_ssize_t seq_len, int32_t *sources, tokenreel_rows *rows) {
    /* Zeros, so that not even a mixture that makes no sense leads to a source that is none. */
    int32_t *source = calloc((size_t)q->count + 1, sizeof *source);
    int64_t *row = calloc((size_t)q->count + 1, sizeof *row), missing = TOKENREEL_MEMORY;
    *rows = (tokenreel_rows){0};
    if (source && row && tokenreel_allocate_rows(rows, q->count)) missing = locate(q, source, row);
    if (!missing) {
        lookup l = {q, source, row, seq_len, rows, 0};
        const void *lost = tokenreel_guarded(look_up, &l);
        rows->lost = lost;
        missing = lost ? TOKENREEL_LOST : l.missing;
    }
    for (Py_ssize_t i = 0; i < q->count && !missing && sources; i++) sources[i] = source[i];
    free(source);
    free(row);
    return missing;
}

void tokenreel_release(Py_buffer *views, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++)
        if (views[i].obj) PyBuffer_Release(&views[i]);
}

enum { SEATS, DEAL, SOURCES, SHARDS, PERMUTATIONS, MIXTURE };
#define NUM_VIEWS TOKENREEL_REQUEST_VIEWS

/* Whether each source has rows, and its shards are in the table. */
static int have_shards(const request *q, Py_ssize_t num_shards) {
    for (Py_ssize_t i = 0; i < q->mixture.num_sources; i++) {
        const tokenreel_source *s = &q->sources[i];
        if (s->num_rows < 1 || s->first_shard < 0 || s->num_shards < 1 || s->num_shards > num_shards ||
            s->first_shard > num_shards - s->num_shards)
            return 0;
    }
    return 1;
}

static int fits(const Py_buffer *v, const request *q) {
    Py_ssize_t sources = q->mixture.num_sources;
    return q->start >= 0 && q->num_rows >= 0 && q->num_rows <= INT32_MAX && v[SEATS].len % 8 == 0 &&
           (v[DEAL].len == 0 || v[DEAL].len == 8) &&
           v[SOURCES].len == sources * (Py_ssize_t)sizeof(tokenreel_source) &&
           v[SHARDS].len % (Py_ssize_t)sizeof(tokenreel_shard) == 0 &&
           v[PERMUTATIONS].len == sources * EPOCHS * PERMUTATION * 8 &&
           have_shards(q, v[SHARDS].len / (Py_ssize_t)sizeof(tokenreel_shard));
}

/* Take the first arguments of a kernel; 0 with an error if they do not fit. */
int tokenreel_take_request(PyObject *args, Py_buffer *v, request *q) {
    long long numbers[TOKENREEL_REQUEST_NUMBERS]; /* start, step, rows of the step */
    for (int i = 0; i < TOKENREEL_REQUEST_NUMBERS; i++) {
        PyObject *number = PyTuple_GetItem(args, i);
        numbers[i] = number ? PyLong_AsLongLong(number) : -1;
        if (PyErr_Occurred()) return 0;
    }
    for (int i = 0; i < NUM_VIEWS; i++) {
        PyObject *view = PyTuple_GetItem(args, TOKENREEL_REQUEST_NUMBERS + i);
        if (!view || PyObject_GetBuffer(view, &v[i], PyBUF_SIMPLE)) {
            tokenreel_release(v, i);
            return 0;
        }
    }
    *q = (request){.start = numbers[0], .step = (uint64_t)numbers[1], .num_rows = numbers[2],
                   .seats = v[SEATS].buf, .count = v[SEATS].len / 8,
                   .deal = v[DEAL].len ? v[DEAL].buf : NULL, .sources = v[SOURCES].buf,
                   .shards = v[SHARDS].buf, .permutations = v[PERMUTATIONS].buf};
    if (!tokenreel_take_mixture(v + MIXTURE, &q->mixture) || !fits(v, q)) {
        PyErr_SetString(PyExc_ValueError, "the tables of a feed do not fit together");
        tokenreel_release(v, NUM_VIEWS);
        return 0;
    }
    return 1;
}
