/* Row numbers to pieces: the plans of the rows room, looked up in the tables of feed/kernel_tables.py.
 *
 * Windows are closed form, packed rows a CSR table, episodes one or two ranges of tokens; ranges are
 * cut where shards and, if asked for, documents end, and get the spans of the turns they overlap.
 * Each step asks for the memory of the next for all rows before any row goes on: a batch of rows
 * lies in as many places of tables that no cache holds.
 *
 * Nothing here trusts a plan: each table is checked as its numpy reference in rows/ checks it, and what
 * does not fit is left to the caller's general way, which says why. All of it is guarded (guard.c):
 * what is allocated is kept in `rows`, whose functions read nothing that is mapped.
 */
#include "native.h"

#include <math.h>
#include <string.h>

enum { WINDOWS, DOCUMENT_WINDOWS, PACKED, EPISODES };
enum { ALL_WEIGH, BY_TURNS, BY_STORED };
#define MARK_BITS 12 /* a mark every 4,096 tokens */
#define TURN_BYTES 24

typedef struct {
    const tokenreel_source *source;
    const tokenreel_shard *shards;
    Py_ssize_t seq_len;
    tokenreel_rows *rows;
    int64_t room; /* tokens that still fit into the row */
} scene;

static const void *at_address(int64_t address) { return (const void *)(uintptr_t)address; }

/* The shard that holds a position: the last whose start is not after it. */
static int64_t find_shard(const tokenreel_source *s, int64_t position) {
    const int64_t *bounds = at_address(s->bounds);
    int64_t low = 0, high = s->num_shards;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (bounds[middle] <= position) low = middle;
        else high = middle;
    }
    return low;
}

static uint64_t start_at(const char *records, int64_t stride, int64_t number) {
    uint64_t start;
    memcpy(&start, records + number * stride, sizeof start);
    return start;
}

/* About where the record of a token is: as far between two marks as the token is. */
static int64_t guess(const int64_t *marks, int64_t token) {
    int64_t low = marks[token >> MARK_BITS], high = marks[(token >> MARK_BITS) + 1];
    return low + (((high - low) * (token & ((1 << MARK_BITS) - 1))) >> MARK_BITS);
}

/* The last record that starts not after a token; 0 if none does. */
static int64_t find_record(const char *records, int64_t stride, const int64_t *marks, int64_t token) {
    int64_t number = guess(marks, token), last = marks[(token >> MARK_BITS) + 1];
    while (number > 0 && start_at(records, stride, number) > (uint64_t)token) number--;
    while (number < last && start_at(records, stride, number + 1) <= (uint64_t)token) number++;
    return number;
}

/* Ask for the records around a token. */
PREFETCHING void announce_record(int64_t records, int64_t stride, int64_t marks, int64_t token) {
    const char *at = (const char *)at_address(records) + guess(at_address(marks), token) * stride;
    PREFETCH(at - 64);
    PREFETCH(at);
    PREFETCH(at + 64);
    PREFETCH(at + 128);
}

static int is_sound(const char *stored, int64_t stored_bytes, int64_t count) {
    if (stored_bytes == 1) return 1;
    int sound = 1;
    const float *weights = (const float *)stored;
    for (int64_t i = 0; i < count; i++) sound &= weights[i] >= 0 && weights[i] < INFINITY;
    return sound;
}

/* Tokens start to stop of a shard as a piece. */
static int64_t add_piece(scene *c, const tokenreel_shard *shard, int64_t start, int64_t stop, int begins) {
    const tokenreel_source *s = c->source;
    int64_t size = s->token_kind < 0 ? -s->token_kind : s->token_kind;
    tokenreel_piece piece = {
        .tokens = (const char *)at_address(shard->tokens) + start * size, .length = stop - start,
        .kind = (int8_t)s->token_kind, .begins = (uint8_t)begins, .weighed = s->weighing != ALL_WEIGH,
        .stored_bytes = (int8_t)s->stored_bytes};
    if (s->weighing == BY_STORED) {
        piece.stored = (const char *)at_address(shard->weights) + start * s->stored_bytes;
        if (!is_sound(piece.stored, s->stored_bytes, piece.length)) return TOKENREEL_OTHERWISE;
    } else if (s->weighing == BY_TURNS) {
        /* Spans are found when all pieces are known; until then the piece keeps shard and start. */
        piece.first_span = shard - c->shards;
        piece.stop_span = start;
    }
    PREFETCH(piece.tokens); /* the page is looked for meanwhile */
    c->room -= piece.length;
    return tokenreel_add_piece(c->rows, piece) ? 0 : TOKENREEL_MEMORY;
}

/* The same, cut where documents end; a part that only goes on with its document begins no segment. */
static int64_t add_documents(scene *c, const tokenreel_shard *shard, int64_t start, int64_t stop,
                             int begins) {
    const char *offsets = at_address(shard->documents);
    int64_t number = find_record(offsets, 8, at_address(shard->document_marks), start);
    if (start_at(offsets, 8, number) > (uint64_t)start) return TOKENREEL_OTHERWISE;
    while (start < stop) {
        if (number >= shard->num_documents) return TOKENREEL_OTHERWISE; /* tokens of no document */
        int64_t end = (int64_t)start_at(offsets, 8, ++number);
        if (end > stop) end = stop;
        if (end <= start) continue;
        int64_t missing = add_piece(c, shard, start, end, begins || !(start == 0 && shard->continued));
        if (missing) return missing;
        begins = 1;
        start = end;
    }
    return 0;
}

/* Tokens of the split from a position on, as pieces of as many shards as they lie in. */
static int64_t add_range(scene *c, int64_t position, int64_t length, int begins) {
    const tokenreel_source *s = c->source;
    const int64_t *bounds = at_address(s->bounds);
    if (position < 0 || length < 0 || length > c->room || position > bounds[s->num_shards] - length)
        return TOKENREEL_OTHERWISE;
    for (int64_t n = find_shard(s, position); length > 0; n++) {
        int64_t end = bounds[n + 1] - position < length ? bounds[n + 1] : position + length;
        if (end <= position) continue; /* an empty shard */
        const tokenreel_shard *shard = &c->shards[s->first_shard + n];
        if (!shard->is_open) return 1 + s->first_shard + n;
        int64_t missing = (s->kind == DOCUMENT_WINDOWS ? add_documents : add_piece)(
            c, shard, position - bounds[n], end - bounds[n], begins);
        if (missing) return missing;
        begins = 0;
        length -= end - position;
        position = end;
    }
    return 0;
}

/* Where the window of a row begins; -1 if a plan names one that there is not. */
static int64_t window_start(const scene *c, int64_t row) {
    const int64_t *kept = at_address(c->source->columns[0]);
    int64_t number = kept ? kept[row] : row;
    return number < 0 || number >= c->source->num_windows ? -1 : number * c->seq_len;
}

static int64_t add_window(scene *c, int64_t row) {
    const tokenreel_source *s = c->source;
    const int64_t *bounds = at_address(s->bounds);
    int64_t start = window_start(c, row);
    if (start < 0) return TOKENREEL_OTHERWISE;
    int64_t rest = bounds[s->num_shards] - start;
    return add_range(c, start, rest < c->seq_len + 1 ? rest : c->seq_len + 1, 1);
}

static int64_t add_packed(scene *c, int64_t row) {
    const tokenreel_source *s = c->source;
    const int64_t *row_offsets = at_address(s->columns[0]), *positions = at_address(s->columns[1]);
    const int32_t *lengths = at_address(s->columns[2]);
    const uint8_t *flags = at_address(s->columns[3]);
    int64_t p = row_offsets[row], stop = row_offsets[row + 1];
    if (p < 0 || stop <= p || stop > s->num_pieces || flags[p] != 1) return TOKENREEL_OTHERWISE;
    for (; p < stop; p++) {
        if (lengths[p] < 1) return TOKENREEL_OTHERWISE;
        int64_t missing = add_range(c, positions[p], lengths[p], flags[p] == 1);
        if (missing) return missing;
    }
    return 0;
}

static int64_t add_episode(scene *c, int64_t row) {
    const tokenreel_source *s = c->source;
    const int64_t num_tokens = ((const int64_t *)at_address(s->bounds))[s->num_shards];
    const int64_t *starts = at_address(s->columns[0]), *prefix_starts = at_address(s->columns[2]);
    const uint32_t *lengths = at_address(s->columns[1]), *prefix_lengths = at_address(s->columns[3]);
    int64_t prefix = prefix_lengths ? prefix_lengths[row] : 0, missing = 0;
    int64_t before = prefix_lengths ? prefix_starts[row] : 0; /* checked also where it is not used */
    if (lengths[row] < 1 || before < 0 || before > num_tokens - prefix) return TOKENREEL_OTHERWISE;
    if (prefix) missing = add_range(c, before, prefix, 1);
    return missing ? missing : add_range(c, starts[row], lengths[row], prefix == 0);
}

/* Ask for what a row is read from: first where its place in the plan is, then what stands there. */
PREFETCHING void announce_row(const scene *c, int64_t row, int again) {
    const tokenreel_source *s = c->source;
    static const int sizes[4] = {8, 8, 4, 1}, episode_sizes[4] = {8, 4, 8, 4};
    if (s->kind == PACKED && again) {
        int64_t p = ((const int64_t *)at_address(s->columns[0]))[row];
        for (int i = 1; i < 4 && p >= 0 && p < s->num_pieces; i++)
            PREFETCH((const char *)at_address(s->columns[i]) + p * sizes[i]);
    } else if (s->kind == DOCUMENT_WINDOWS && again) {
        const int64_t *bounds = at_address(s->bounds);
        int64_t start = window_start(c, row);
        if (start < 0) return; /* a damaged plan: refused later */
        int64_t n = find_shard(s, start), token = start - bounds[n];
        const tokenreel_shard *shard = &c->shards[s->first_shard + n];
        if (shard->is_open) announce_record(shard->documents, 8, shard->document_marks, token);
    } else if (!again) {
        for (int i = 0; i < (s->kind == EPISODES ? 4 : 1); i++)
            if (s->columns[i])
                PREFETCH((const char *)at_address(s->columns[i]) + row * episode_sizes[i]);
    }
}

/* Give a piece the trained parts of the turns it overlaps. */
static int add_spans(const tokenreel_shard *shard, tokenreel_piece *piece, int64_t start,
                     tokenreel_rows *rows) {
    const char *turns = at_address(shard->turns);
    piece->first_span = rows->num_spans;
    int64_t n = shard->num_turns
                    ? find_record(turns, TURN_BYTES, at_address(shard->turn_marks), start) : 0;
    for (; n < shard->num_turns; n++) {
        struct {
            uint64_t start;
            uint32_t length;
            uint16_t head, tail;
            float weight;
        } turn;
        memcpy(&turn, turns + n * TURN_BYTES, 20);
        if (turn.start >= (uint64_t)(start + piece->length)) break;
        int64_t begin = (int64_t)turn.start - start;
        int64_t stop = begin + turn.length - turn.tail;
        begin += turn.head;
        if (stop <= 0 || stop <= begin || !(turn.weight > 0)) continue;
        if (!tokenreel_add_span(rows, (tokenreel_span){begin, stop, turn.weight})) return 0;
    }
    piece->stop_span = rows->num_spans;
    return 1;
}

static int64_t weigh(const tokenreel_shard *shards, tokenreel_rows *rows) {
    tokenreel_piece *end = rows->pieces + rows->num_pieces;
    for (tokenreel_piece *p = rows->pieces; p < end; p++)
        if (p->weighed && !p->stored && shards[p->first_span].num_turns) {
            const tokenreel_shard *shard = &shards[p->first_span];
            announce_record(shard->turns, TURN_BYTES, shard->turn_marks, p->stop_span);
        }
    for (tokenreel_piece *p = rows->pieces; p < end; p++)
        if (p->weighed && !p->stored && !add_spans(&shards[p->first_span], p, p->stop_span, rows))
            return TOKENREEL_MEMORY;
    return 0;
}

int64_t tokenreel_look_up(const tokenreel_source *sources, const tokenreel_shard *shards,
                          const int32_t *source, const int64_t *row, Py_ssize_t seq_len,
                          tokenreel_rows *rows) {
    scene c = {.shards = shards, .seq_len = seq_len, .rows = rows};
    for (int again = 0; again < 2; again++)
        for (Py_ssize_t r = 0; r < rows->num_rows; r++) {
            if (source[r] == TOKENREEL_NO_SOURCE) continue;
            c.source = &sources[source[r]];
            announce_row(&c, row[r], again);
        }
    for (Py_ssize_t r = 0; r < rows->num_rows; r++) {
        rows->row_offsets[r + 1] = rows->num_pieces;
        if (source[r] == TOKENREEL_NO_SOURCE) continue; /* no pieces: all of it is padding */
        c.source = &sources[source[r]];
        c.room = seq_len + 1;
        int64_t missing = c.source->kind == PACKED     ? add_packed(&c, row[r])
                          : c.source->kind == EPISODES ? add_episode(&c, row[r])
                                                       : add_window(&c, row[r]);
        /* All shards that are not open are noted, to be opened together. */
        if (missing > 0 && !tokenreel_add_missing(rows, missing - 1)) return TOKENREEL_MEMORY;
        if (missing < 0) return missing;
        rows->row_offsets[r + 1] = rows->num_pieces;
    }
    return rows->num_missing ? 1 + rows->missing[0] : weigh(shards, rows);
}
