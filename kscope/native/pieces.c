/* Exclusive pieces of warps' lives, and what the warps of a block did at the same time.
   analysis/segments.py and analysis/overlap.py do the same in numpy. */

#include "native.h"

#include <stdlib.h>

enum { NONE = -1 }; /* the name of time in no region */

typedef struct {
    int64_t start, end, name;
} Span;

/* Where pieces go: they are written from the last one to the first, down from `at`. */
typedef struct {
    int64_t *track, *name;
    double *start, *end;
    uint8_t *opens, *closes;
    int64_t at;
} Pieces;

/* A warp's clock: ns = origin + (tick - first) * pace. */
typedef struct {
    int64_t row, first;
    double origin, pace;
} Clock;

static double ns_of(const Clock *clock, int64_t tick)
{
    return clock->origin + (double)(tick - clock->first) * clock->pace;
}

static void put(Pieces *out, int64_t row, int64_t name, double start, double end, int opens, int closes)
{
    const int64_t at = --out->at;
    out->track[at] = row;
    out->name[at] = name;
    out->start[at] = start;
    out->end[at] = end;
    out->opens[at] = (uint8_t)opens;
    out->closes[at] = (uint8_t)closes;
}

/* The first piece of a span, up to `until`. Returns where it begins. */
static int64_t put_first(Pieces *out, const Clock *clock, const Span *span, int64_t until)
{
    if (span->start < until)
        put(out, clock->row, span->name, ns_of(clock, span->start), ns_of(clock, until), 1, until == span->end);
    return span->start;
}

/* The pieces of one warp before `until`, the end of its last span. spans: (count,) in order of end. stack: room for
   as many. Returns 0 if spans cross without nesting. */
static int put_spans(Pieces *out, const Clock *clock, const Span *spans, int64_t count, const Span **stack, int64_t until)
{
    int64_t depth = 0;
    for (int64_t i = count - 1; i >= 0; i--) {
        while (depth && stack[depth - 1]->start > spans[i].start)
            until = put_first(out, clock, stack[--depth], until);
        if (spans[i].end > until)
            return 0;
        const Span *const around = depth ? stack[depth - 1] : 0;
        if (spans[i].end < until)
            put(out, clock->row, around ? around->name : NONE, ns_of(clock, spans[i].end), ns_of(clock, until), 0,
                around && until == around->end);
        stack[depth++] = &spans[i];
        until = spans[i].end;
    }
    while (depth)
        until = put_first(out, clock, stack[--depth], until);
    if (clock->first < until)
        put(out, clock->row, NONE, clock->origin, ns_of(clock, until), 1, 0);
    return 1;
}

/* The pieces of the warps row[0..rows), by warp and time, at the end of the columns of `room` pieces.
   begin, count: of each warp's records. code: name of each region, NONE if it has no length. ends: of warps, ns.
   track to closes: see Segments. crossing[0]: set if spans of a warp cross; the pieces are then incomplete.
   Returns the number of pieces, or -1 without memory. */
int64_t ks_pieces(int64_t rows, const int64_t *row, const int64_t *begin, const int64_t *count, const int64_t *code,
                  const uint16_t *region, const int64_t *start, const int64_t *took, const int64_t *first_tick,
                  const double *start_ns, const double *tick_ns, const double *ends, int64_t room, int64_t *track,
                  int64_t *name, double *from, double *to, uint8_t *opens, uint8_t *closes, int64_t *crossing)
{
    int64_t most = 0;
    for (int64_t r = 0; r < rows; r++)
        most = count[r] > most ? count[r] : most;
    Span *const spans = malloc(sizeof(Span) * (size_t)(most + 1));
    const Span **const stack = malloc(sizeof(Span *) * (size_t)(most + 1));
    Pieces out = {track, name, from, to, opens, closes, room};
    for (int64_t r = rows - 1; spans && stack && r >= 0 && !*crossing; r--) {
        const Clock clock = {row[r], first_tick[row[r]], start_ns[row[r]], tick_ns[row[r]]};
        int64_t found = 0;
        for (int64_t i = begin[r]; i < begin[r] + count[r]; i++)
            if (took[i] > 0 && code[region[i]] != NONE)
                spans[found++] = (Span){start[i], start[i] + took[i], code[region[i]]};
        const int64_t last = found ? spans[found - 1].end : clock.first;
        const double seen = ns_of(&clock, last);
        if (ends[row[r]] > seen)
            put(&out, row[r], NONE, seen, ends[row[r]], last == clock.first, 1);
        *crossing = found && !put_spans(&out, &clock, spans, found, stack, last);
    }
    const int64_t made = spans && stack ? room - out.at : -1;
    free(spans);
    free(stack);
    return made;
}

/* The states that warps of a block are in. */
typedef struct {
    int64_t states, present, alive;
    int64_t *count;   /* warps in each state */
    int64_t *list;    /* the states with warps */
    int64_t *place;   /* of each of them in `list` */
    double *since;    /* when the count of each changed last */
    double changed;   /* when any did */
    double *total, *alone;
} Block;

/* A warp entered (by = 1) or left (by = -1) a state: add the time of its neighbors in the pairs with that state. */
static void change(Block *block, int64_t state, int64_t by, double time)
{
    double *const total = block->total + state * block->states;
    const int64_t mine = block->count[state];
    if (block->alive == 1)
        block->alone[block->list[0]] += time - block->changed;
    block->changed = time;
    block->alive += by;
    if (mine) {
        for (int64_t i = 0; i < block->present; i++) {
            const int64_t other = block->list[i];
            const double since = block->since[other] > block->since[state] ? block->since[other] : block->since[state];
            const double pairs = (double)mine * (other == state ? (double)(mine - 1) / 2 : (double)block->count[other]);
            total[other] += pairs * (time - since);
        }
    } else {
        block->place[state] = block->present;
        block->list[block->present++] = state;
    }
    block->since[state] = time;
    block->count[state] += by;
    if (!block->count[state]) {
        const int64_t last = block->list[--block->present];
        block->list[block->place[state]] = last;
        block->place[last] = block->place[state];
    }
}

/* A warp's next edge: the start or the end of its piece. */
typedef struct {
    double time;
    int64_t piece, last; /* the warp's pieces are piece..last */
    int inside;
} Edge;

/* Move the first edge down to its place in a heap by time. */
static void sift(Edge *heap, int64_t size, int64_t at)
{
    const Edge moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < size; at = child) {
        child += child + 1 < size && heap[child + 1].time < heap[child].time;
        if (!(heap[child].time < moved.time))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* Go through the edges of a block's warps in order of time. */
static void sweep(Block *block, Edge *heap, int64_t size, const int64_t *state, const double *start, const double *end)
{
    for (int64_t at = size / 2 - 1; at >= 0; at--)
        sift(heap, size, at);
    while (size) {
        Edge *const next = &heap[0];
        const double time = next->time;
        if (next->inside)
            change(block, state[next->piece++], -1, time);
        next->inside = next->piece < next->last && (!next->inside || start[next->piece] <= time);
        if (next->inside)
            change(block, state[next->piece], 1, time);
        if (next->piece < next->last)
            next->time = next->inside ? end[next->piece] : start[next->piece];
        else
            heap[0] = heap[--size];
        sift(heap, size, 0);
    }
}

/* Add to total (states, states) the time that one warp was in a state while another of its block was in another one, a
   pair in one of its two places, and a state with itself half; to alone (states,) the time of the only warp alive.
   first: (blocks + 1,) where each block's warps begin. piece: (warps + 1,) where each warp's pieces begin; they are in
   order of time. Returns -1 without memory. */
int64_t ks_overlap(int64_t blocks, const int64_t *first, const int64_t *piece, const int64_t *state, const double *start,
                   const double *end, int64_t states, double *total, double *alone)
{
    int64_t most = 1;
    for (int64_t b = 0; b < blocks; b++)
        most = first[b + 1] - first[b] > most ? first[b + 1] - first[b] : most;
    Edge *const heap = malloc(sizeof(Edge) * (size_t)most);
    int64_t *const counts = calloc((size_t)states * 3 + 1, sizeof(int64_t));
    double *const since = calloc((size_t)states + 1, sizeof(double));
    if (heap && counts && since) {
        Block block = {states, 0, 0, counts, counts + states, counts + 2 * states, since, 0, total, alone};
        for (int64_t b = 0; b < blocks; b++) {
            int64_t size = 0;
            for (int64_t warp = first[b]; warp < first[b + 1]; warp++)
                if (piece[warp] < piece[warp + 1])
                    heap[size++] = (Edge){start[piece[warp]], piece[warp], piece[warp + 1], 0};
            sweep(&block, heap, size, state, start, end);
        }
    }
    const int64_t result = heap && counts && since ? 0 : -1;
    free(heap);
    free(counts);
    free(since);
    return result;
}
