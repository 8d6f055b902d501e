/* tokenreel._native: what every kernel file shares.
 *
 * Kernels take buffers (never numpy objects), check every size before the loop, and release the GIL
 * inside it. One file for each thing: store.c narrows, order.c shuffles and mixes, rows.c packs,
 * request.c and lookup.c find the pieces of rows, feed.c fills rows with them (threads.c shares them
 * out), gather.c and assemble.c are the kernels that do so. mapping.c maps files, guard.c reads them
 * though they may be cut off meanwhile.
 */
#ifndef TOKENREEL_NATIVE_H
#define TOKENREEL_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* Loops that profit from wider vectors get a second version, chosen when the module is loaded. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define VECTORISED __attribute__((target_clones("avx2", "default")))
#else
#define VECTORISED
#endif

/* Ask for memory that will be read soon. A function that does nothing else must be PREFETCHING: gcc
 * takes it for one without effect and leaves its calls out. */
#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#define PREFETCHING static inline __attribute__((always_inline))
#else
#define PREFETCH(address) ((void)(address))
#define PREFETCHING static inline
#endif

/* threads.c: work on items 0 to count, by the caller and helpers, `threads` in all */
#define TOKENREEL_THREADS 256 /* at most */
typedef void (*tokenreel_work)(void *given, Py_ssize_t start, Py_ssize_t stop);

int tokenreel_prepare_threads(void);
void tokenreel_together(tokenreel_work work, void *given, Py_ssize_t count, Py_ssize_t threads);

/* guard.c: read mapped memory; NULL, or the address at which a page was gone. `reading` is then cut
 * short wherever it was: it must own nothing, hold no lock and call nothing of Python. */
typedef void (*tokenreel_reading)(void *given);

const void *tokenreel_guarded(tokenreel_reading reading, void *given);
void tokenreel_set_guard(void);
void tokenreel_look_again(void); /* a forked process begins, whose handlers may be others */

/* mapping.c: the type Mapping; the error of an address that was gone, which is raised */
int tokenreel_add_mapping(PyObject *module);
PyObject *tokenreel_raise_lost(const void *address);

/* json_lines.c */
PyObject *tokenreel_scan_lines(PyObject *self, PyObject *args);

/* text.c */
PyObject *tokenreel_any_within(PyObject *self, PyObject *args);
PyObject *tokenreel_count_newlines(PyObject *self, PyObject *args);

/* store.c */
PyObject *tokenreel_narrow(PyObject *self, PyObject *args);
PyObject *tokenreel_narrow_ended(PyObject *self, PyObject *args);
PyObject *tokenreel_start_writeback(PyObject *self, PyObject *args);

/* order.c: a permutation of [0, length); a * b >= length, eight round keys */
#define TOKENREEL_ROUNDS 8
typedef struct {
    uint64_t length, a, b;
    const uint64_t *keys;
} tokenreel_permutation;

uint64_t tokenreel_permute_one(uint64_t value, const tokenreel_permutation *p, int backward);
void tokenreel_permute_rows(uint64_t *values, const tokenreel_permutation *const *p, Py_ssize_t count);
PyObject *tokenreel_permute(PyObject *self, PyObject *args);

/* order.c: a hash of a number, as seeds.py's scramble */
static inline uint64_t tokenreel_scramble(uint64_t number, uint64_t key) {
    uint64_t mixed = (number + key) * UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ (mixed >> 31);
}

/* order.c: which row of a step sits in each seat, as order/deal.py has it; fewer than 2^32 rows */
void tokenreel_deal(uint64_t key, uint64_t step, Py_ssize_t num_rows, int64_t *rows);

/* order.c: a mixture, the tables of order/mixture.py: starts [segments]; shares, slopes, totals
 * [segments][sources]; the others [sources] */
#define TOKENREEL_MIXTURE_TABLES 8
#define TOKENREEL_MARGIN (1.0 / 64) /* of a position */
typedef struct {
    Py_ssize_t num_segments, num_sources;
    const double *starts, *shares, *slopes, *totals;
    const uint64_t *keys;
    const int64_t *given;
    const double *offset, *width;
} tokenreel_mixture;

int tokenreel_take_mixture(const Py_buffer *tables, tokenreel_mixture *m);
int tokenreel_mix_rows(const tokenreel_mixture *m, int64_t start, Py_ssize_t count, int32_t *source,
                       int64_t *number, int64_t *counts);
PyObject *tokenreel_mix(PyObject *self, PyObject *args);
PyObject *tokenreel_carry(PyObject *self, PyObject *args);

/* rows.c */
PyObject *tokenreel_pack(PyObject *self, PyObject *args);

/* The bytes of a token of a kind: its item size, negative if signed */
static inline int tokenreel_size_of(int kind) { return kind < 0 ? -kind : kind; }

/* feed.c: rows as pieces, ready to be copied */
typedef struct {
    int64_t start, stop; /* tokens of the piece */
    float weight;
} tokenreel_span;

typedef struct {
    const char *tokens;                /* the first one */
    const char *stored;                /* its stored weight, or NULL */
    int64_t length;
    Py_ssize_t first_span, stop_span;  /* what weighs */
    int8_t kind;                       /* item size of the tokens, negative if they are signed */
    int8_t stored_bytes;               /* 1: uint8, 4: float32 */
    uint8_t begins;                    /* a segment begins here */
    uint8_t weighed;                   /* by spans or stored weights; 0: every token is a label, and
                                          weighs 1, or what is stored */
} tokenreel_piece;

typedef struct {
    const void *lost;                  /* address of a page that was gone when rows were looked up */
    Py_ssize_t num_rows, num_pieces, num_spans, piece_room, span_room;
    Py_ssize_t *row_offsets;           /* [num_rows + 1] */
    tokenreel_piece *pieces;
    tokenreel_span *spans;
    Py_ssize_t num_missing, missing_room;
    int64_t *missing;                  /* places of shards that are not open */
} tokenreel_rows;

#define TOKENREEL_IGNORED (-100)       /* a label that is not trained */

typedef struct {
    Py_ssize_t seq_len;
    int64_t pad, label_pad;            /* what is left of a row, in inputs and in labels */
    const int64_t *out_row;            /* NULL: row r is put where row r is */
    int64_t *inputs, *labels;
    int32_t *segments, *positions;     /* may be NULL */
    float *weights;                    /* may be NULL */
    uint8_t *mask;                     /* may be NULL: 1 where there is a token */
    int threads;                       /* that may share the work, the caller's among them */
} tokenreel_output;

#define TOKENREEL_SHARE (1 << 16)      /* tokens that are worth a thread */

const void *tokenreel_fill(const tokenreel_rows *rows, const tokenreel_output *out); /* as guarded */
int tokenreel_add_piece(tokenreel_rows *rows, tokenreel_piece piece);
int tokenreel_add_span(tokenreel_rows *rows, tokenreel_span span);
int tokenreel_add_missing(tokenreel_rows *rows, int64_t shard);
int tokenreel_allocate_rows(tokenreel_rows *rows, Py_ssize_t num_rows);
void tokenreel_free_rows(tokenreel_rows *rows);

/* gather.c */
PyObject *tokenreel_gather(PyObject *self, PyObject *args);

/* lookup.c: the tables of feed/kernel_tables.py, all int64; what is called an address is one */
typedef struct {
    int64_t kind, num_rows, limit, epoch, shuffled, first_shard, num_shards, bounds, token_kind,
        weighing, stored_bytes, num_pieces, num_windows, columns[4];
} tokenreel_source;

typedef struct {
    int64_t is_open, tokens, documents, num_documents, document_marks, continued, turns, num_turns,
        turn_marks, weights;
} tokenreel_shard;

#define TOKENREEL_NO_SOURCE (-1) /* of a row that is padding */

/* What keeps a kernel from making rows, besides a shard that is not open (1 + its place). */
enum { TOKENREEL_EPOCH = -1, TOKENREEL_OTHERWISE = -2, TOKENREEL_PADDED = -3, TOKENREEL_MEMORY = -4,
       TOKENREEL_LOST = -5 };

int64_t tokenreel_look_up(const tokenreel_source *sources, const tokenreel_shard *shards,
                          const int32_t *source, const int64_t *row, Py_ssize_t seq_len,
                          tokenreel_rows *rows);

/* request.c: what rows a kernel is asked for; its first arguments are these, in this order */
typedef struct {
    int64_t start;                /* position of the step's first row, from the mixture's time 0 on */
    uint64_t step;
    Py_ssize_t num_rows;          /* of the step */
    const int64_t *seats;         /* [count]: which of them; -1: none, the row is padding */
    Py_ssize_t count;
    const uint64_t *deal;         /* the key by which rows are dealt to seats, or NULL */
    const tokenreel_source *sources;
    const tokenreel_shard *shards;
    const uint64_t *permutations; /* [sources][2 epochs][2 + rounds] */
    tokenreel_mixture mixture;
} tokenreel_request;

#define TOKENREEL_REQUEST_NUMBERS 3
#define TOKENREEL_REQUEST_VIEWS (5 + TOKENREEL_MIXTURE_TABLES)
#define TOKENREEL_REQUEST_ARGS (TOKENREEL_REQUEST_NUMBERS + TOKENREEL_REQUEST_VIEWS)

int tokenreel_take_request(PyObject *args, Py_buffer *views, tokenreel_request *q);
void tokenreel_release(Py_buffer *views, Py_ssize_t count);
int64_t tokenreel_find(const tokenreel_request *q, Py_ssize_t seq_len, int32_t *source,
                       tokenreel_rows *rows);

/* assemble.c */
PyObject *tokenreel_assemble(PyObject *self, PyObject *args);
PyObject *tokenreel_announce(PyObject *self, PyObject *args);
PyObject *tokenreel_weigh(PyObject *self, PyObject *args);

#endif
