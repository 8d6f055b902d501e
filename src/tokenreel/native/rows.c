/* Kernels of the rows room.
 *
 * pack: lengths into rows of a capacity, by best fit or first fit of decreasing lengths, or
 * in order. What ties mean, and the reference, is in rows/packing.py.
 */
#include "native.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

typedef struct {
    const uint32_t *lengths;
    uint32_t count, capacity;
    const uint32_t *turn; /* the items in the order in which they are placed */
    uint32_t *row_of;     /* out: the row of the k-th item placed */
} packing;

/* Return the number of rows, or -1 without memory. */
typedef int64_t (*method)(const packing *);

/* Which remaining capacities some row has: a bit each, and a bit for each word of those. */
typedef struct {
    uint64_t *words, *summary;
    uint32_t num_words, num_summaries;
} bitset;

static inline void set_bit(bitset *bits, uint32_t value) {
    bits->words[value >> 6] |= UINT64_C(1) << (value & 63);
    bits->summary[value >> 12] |= UINT64_C(1) << (value >> 6 & 63);
}

static inline void clear_bit(bitset *bits, uint32_t value) {
    bits->words[value >> 6] &= ~(UINT64_C(1) << (value & 63));
    if (bits->words[value >> 6] == 0)
        bits->summary[value >> 12] &= ~(UINT64_C(1) << (value >> 6 & 63));
}

static inline uint32_t lowest_bit(uint64_t word) {
#if defined(__GNUC__) || defined(__clang__)
    return (uint32_t)__builtin_ctzll(word);
#else
    uint32_t bit = 0;
    while (!(word >> bit & 1)) bit++;
    return bit;
#endif
}

/* Return the smallest value >= least that is set, or NONE. */
static inline uint32_t find_bit(const bitset *bits, uint32_t least) {
    uint32_t word = least >> 6;
    uint64_t found = bits->words[word] & (UINT64_MAX << (least & 63));
    if (found) return (word << 6) + lowest_bit(found);
    if (++word == bits->num_words) return NONE;
    uint32_t group = word >> 6;
    found = bits->summary[group] & (UINT64_MAX << (word & 63));
    while (!found) {
        if (++group == bits->num_summaries) return NONE;
        found = bits->summary[group];
    }
    word = (group << 6) + lowest_bit(found);
    return (word << 6) + lowest_bit(bits->words[word]);
}

static int64_t best_fit(const packing *p) {
    bitset bits = {.num_words = (p->capacity >> 6) + 1, .num_summaries = (p->capacity >> 12) + 1};
    uint32_t *top = malloc(((size_t)p->capacity + 1) * sizeof *top); /* row on top of each stack */
    uint32_t *below = malloc(((size_t)p->count + 1) * sizeof *below);  /* row under each row */
    bits.words = calloc(bits.num_words, sizeof *bits.words);
    bits.summary = calloc(bits.num_summaries, sizeof *bits.summary);
    int64_t rows = -1;
    if (!top || !below || !bits.words || !bits.summary) goto done;
    for (uint32_t left = 0; left <= p->capacity; left++) top[left] = NONE;
    rows = 0;
    for (uint32_t k = 0; k < p->count; k++) {
        uint32_t length = p->lengths[p->turn[k]];
        uint32_t left = find_bit(&bits, length), row;
        if (left == NONE) {
            row = (uint32_t)rows++;
            left = p->capacity;
        } else {
            row = top[left];
            top[left] = below[row];
            if (top[left] == NONE) clear_bit(&bits, left);
        }
        p->row_of[k] = row;
        left -= length;
        if (left == 0) continue;
        below[row] = top[left];
        if (top[left] == NONE) set_bit(&bits, left);
        top[left] = row;
    }
done:
    free(top);
    free(below);
    free(bits.words);
    free(bits.summary);
    return rows;
}

/* A tree over as many rows as there could be: node i holds the largest capacity left below it. */
static int64_t first_fit(const packing *p) {
    size_t leaves = 1;
    while (leaves < p->count) leaves *= 2;
    uint32_t *most = malloc(2 * leaves * sizeof *most);
    if (!most) return -1;
    for (size_t node = 0; node < 2 * leaves; node++) most[node] = p->capacity;
    uint32_t rows = 0;
    for (uint32_t k = 0; k < p->count; k++) {
        uint32_t length = p->lengths[p->turn[k]];
        size_t node = 1;
        while (node < leaves) {
            node *= 2;
            node += most[node] < length;
        }
        uint32_t row = (uint32_t)(node - leaves);
        p->row_of[k] = row;
        if (row >= rows) rows = row + 1;
        most[node] -= length;
        while (node /= 2) {
            uint32_t left = most[2 * node], right = most[2 * node + 1];
            uint32_t larger = left > right ? left : right;
            if (most[node] == larger) break;
            most[node] = larger;
        }
    }
    free(most);
    return rows;
}

static int64_t sequential(const packing *p) {
    uint32_t rows = 0, left = 0;
    for (uint32_t k = 0; k < p->count; k++) {
        uint32_t length = p->lengths[p->turn[k]];
        if (length > left || rows == 0) {
            rows++;
            left = p->capacity;
        }
        left -= length;
        p->row_of[k] = rows - 1;
    }
    return rows;
}

/* Order the items by decreasing length; equal ones keep their order. */
static int sort_decreasing(const uint32_t *lengths, uint32_t count, uint32_t capacity,
                           uint32_t *turn) {
    uint32_t *place = calloc((size_t)capacity + 2, sizeof *place);
    if (!place) return -1;
    for (uint32_t i = 0; i < count; i++) place[lengths[i]]++;
    for (uint32_t length = capacity, before = 0; length > 0; length--) {
        uint32_t same = place[length];
        place[length] = before;
        before += same;
    }
    for (uint32_t i = 0; i < count; i++) turn[place[lengths[i]]++] = i;
    free(place);
    return 0;
}

/* Write where each row begins and the items row by row, each row's in the order given; rows are
 * numbered by their first items. Return -1 without memory. */
static int lay_out(const packing *p, int64_t rows, int64_t *row_offsets, int64_t *order) {
    uint32_t *row_of_item = malloc(((size_t)p->count + 1) * sizeof *row_of_item);
    uint32_t *number = malloc(((size_t)rows + 1) * sizeof *number), next = 0;
    if (row_of_item && number) {
        for (int64_t row = 0; row <= rows; row++) row_offsets[row] = 0, number[row] = NONE;
        for (uint32_t k = 0; k < p->count; k++) row_of_item[p->turn[k]] = p->row_of[k];
        for (uint32_t item = 0; item < p->count; item++) {
            uint32_t row = row_of_item[item];
            if (number[row] == NONE) number[row] = next++;
            row = row_of_item[item] = number[row];
            /* Counted one place too far right, then advanced while filling: no further array. */
            if (row + 2 <= rows) row_offsets[row + 2]++;
        }
        for (int64_t row = 2; row <= rows; row++) row_offsets[row] += row_offsets[row - 1];
        for (uint32_t item = 0; item < p->count; item++)
            order[row_offsets[(int64_t)row_of_item[item] + 1]++] = item;
    }
    int enough = row_of_item && number;
    free(row_of_item);
    free(number);
    return enough ? 0 : -1;
}

static int64_t pack(packing *p, method run, int is_sorted, int64_t *row_offsets, int64_t *order) {
    uint32_t *turn = malloc(((size_t)p->count + 1) * sizeof *turn);
    p->row_of = malloc(((size_t)p->count + 1) * sizeof *p->row_of);
    int64_t rows = -1;
    if (!turn || !p->row_of) goto done;
    if (is_sorted) {
        if (sort_decreasing(p->lengths, p->count, p->capacity, turn) < 0) goto done;
    } else {
        for (uint32_t i = 0; i < p->count; i++) turn[i] = i;
    }
    p->turn = turn;
    rows = run(p);
    if (rows >= 0 && lay_out(p, rows, row_offsets, order) < 0) rows = -1;
done:
    free(turn);
    free(p->row_of);
    return rows;
}

static int fits(const uint32_t *lengths, uint32_t count, uint32_t capacity) {
    for (uint32_t i = 0; i < count; i++)
        if (lengths[i] - 1 >= capacity) return 0; /* 0 wraps to the largest number */
    return 1;
}

static method choose(const char *name, int *is_sorted) {
    static const struct {
        const char *name;
        method run;
        int is_sorted;
    } table[] = {
        {"best_fit", best_fit, 1},
        {"first_fit", first_fit, 1},
        {"sequential", sequential, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(name, table[i].name) == 0) {
            *is_sorted = table[i].is_sorted;
            return table[i].run;
        }
    return NULL;
}

PyObject *tokenreel_pack(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer lengths, row_offsets, order;
    unsigned long long capacity;
    const char *name;
    if (!PyArg_ParseTuple(args, "y*Ksw*w*", &lengths, &capacity, &name, &row_offsets, &order))
        return NULL;
    PyObject *result = NULL;
    Py_ssize_t count = lengths.len / 4;
    int is_sorted = 0;
    method run = choose(name, &is_sorted);
    if (run == NULL) {
        PyErr_Format(PyExc_ValueError, "pack: no method %s", name);
        goto done;
    }
    if (lengths.len % 4 || order.len != count * 8 || row_offsets.len != (count + 1) * 8) {
        PyErr_SetString(PyExc_ValueError, "pack: buffer sizes do not fit");
        goto done;
    }
    if (count > INT32_MAX || capacity == 0 || capacity > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "pack: too many lengths, or no such capacity");
        goto done;
    }
    packing p = {.lengths = lengths.buf, .count = (uint32_t)count, .capacity = (uint32_t)capacity};
    int valid;
    int64_t rows = 0;
    Py_BEGIN_ALLOW_THREADS;
    valid = fits(p.lengths, p.count, p.capacity);
    if (valid) rows = pack(&p, run, is_sorted, row_offsets.buf, order.buf);
    Py_END_ALLOW_THREADS;
    if (!valid)
        PyErr_SetString(PyExc_ValueError, "pack: a length is 0 or larger than the capacity");
    else if (rows < 0)
        PyErr_NoMemory();
    else
        result = PyLong_FromLongLong(rows);
done:
    PyBuffer_Release(&lengths);
    PyBuffer_Release(&row_offsets);
    PyBuffer_Release(&order);
    return result;
}
