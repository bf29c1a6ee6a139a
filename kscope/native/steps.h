#ifndef KSCOPE_STEPS_H
#define KSCOPE_STEPS_H

/* Functions that are also called from other sources; each is explained where it is defined. */

#include "threads.h"

/* A search for slabs, see ks_claims(): from the beginning to the end the caller may do other things, but not use
   kept_memory(). settled: of warps that ended before it, records have arrived; 0 if none is known to have ended. */
struct chunk {
    int64_t from, to, stop; /* units that a slab may begin at, and where its part ends */
    int64_t room, found;    /* first place in the columns, and slabs */
    int64_t end;            /* of the last one */
    int64_t overrun;        /* slabs with more records than room */
};

struct claims {
    const uint32_t *units;
    int64_t least_log2, most_log2, settled;
    uint32_t *at;
    uint8_t *log2, *closed, *over;
    int64_t parts;
    const int64_t *first;
    struct chunk *chunks;
    int64_t count;
    struct work work;
};

int begin_claims(struct claims *search, int64_t threads);
int64_t finish_claims(struct claims *search, int64_t *opens, int64_t *overrun);

int64_t ks_entries(const uint32_t *units, int64_t slabs, const uint32_t *at, const uint8_t *closed, int64_t epoch,
                   int64_t reread, const uint8_t *grid, const uint8_t *log2, const double *read_at, double stale, int64_t last,
                   int64_t threads, int32_t *entry, uint8_t *missing, int32_t *rows, int64_t *counts);
int64_t ks_learn(const uint32_t *read, int64_t count, int64_t first, int64_t epoch, uint32_t *rows, uint8_t *grid,
                 uint8_t *log2);
int64_t ks_take(const uint32_t *units, int64_t least_log2, int64_t most_log2, int64_t running, int64_t threads,
                int64_t parts, const int64_t *stripe, const int64_t *first, const uint32_t *tail, const uint8_t *whole,
                const uint32_t *skipped, const uint32_t *head, const int64_t *opens, const uint32_t *at,
                const uint8_t *log2, const uint8_t *closed, const int32_t *entry, const uint32_t *ring, uint32_t *found,
                uint32_t *proven, const uint32_t *clean, const uint32_t *limit, int64_t *free_units, int64_t *taken,
                uint32_t *taken_at, int32_t *taken_entry);
int64_t ks_plan(const uint32_t *units, int64_t slabs, int64_t step, const uint32_t *at, const int32_t *entry,
                const uint32_t *launches, double rate, int64_t first_turn, int64_t threads, const uint32_t *layouts,
                const int32_t *first, const int32_t *stop, uint64_t *clock, uint64_t *time, uint32_t *kept,
                int64_t *line, uint64_t *start_clock);

#endif
