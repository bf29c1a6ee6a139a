#ifndef KSCOPE_EXPAND_H
#define KSCOPE_EXPAND_H

#include "clock_rows.h"
#include "threads.h"

enum { LINE_WORDS = 16, HEADER_LINES = 2, RECORDS_PER_LINE = 4, RECORD_WORDS = 4, LEAST_KEPT = 4 };
enum { GLOBALTIMER_BIT = 1 << 15, TIMER_ROUNDING = (1 << TIME_SHIFT) - 1 };
enum { LEAST_LINES = 1 << 12 }; /* for a thread */

/* Slabs that are written; see ks_expand(). */
struct expansion {
    const uint32_t *units;
    int64_t slabs, step;
    const uint32_t *at;
    const int32_t *entry;
    const uint32_t *kept;
    const int64_t *line;
    const uint64_t *start_clock;
    int64_t claims;
    const int64_t *opens;
    const uint32_t *stripe, *origin, *launches;
    struct layouts layouts;
    uint32_t header_word, done_word, epoch;
    uint32_t *lines;
};

/* Write the slabs of one step. context: a struct expansion. */
void write_step(void *context, int64_t index);

static inline uint64_t low_bits(uint64_t value, int bits)
{
    return value & (((uint64_t)1 << bits) - 1);
}

/* The first time that ends in the low bits, from `earlier` ns before another on, and from 0 on. */
static inline uint64_t after(uint64_t time, uint64_t low, int bits, uint64_t earlier)
{
    const uint64_t from = time < earlier ? 0 : time - earlier;
    return from + low_bits(low - from, bits);
}

static inline uint64_t lasted_ns(const uint32_t *head)
{
    const uint64_t turns = (uint64_t)(head[SEAL] >> TURNS_SHIFT & 255) << 32;
    return low_bits(turns + (uint32_t)(head[END_TIME] << TIME_SHIFT) - (uint32_t)(head[START_TIME] << TIME_SHIFT), 40);
}

/* %globaltimer at the start, ns. */
static inline uint64_t start_ns(const uint32_t *head, const uint32_t *launch)
{
    const uint64_t time = two(launch + TIME);
    if (!is_finished(head))
        return after(time, (uint32_t)(head[START_TIME] << TIME_SHIFT), 32, (uint64_t)1 << 30);
    return after(time, ((uint64_t)head[END_TIME] << TIME_SHIFT) - lasted_ns(head), 37, (uint64_t)1 << 35);
}

/* %globaltimer at the end, ns. */
static inline uint64_t end_ns(const uint32_t *head, const uint32_t *launch, uint64_t start)
{
    return start + lasted_ns(head) + (launch[LAYOUT] & GLOBALTIMER_BIT ? TIMER_ROUNDING : 0);
}

/* From the start's clock to the end's. The seal has the difference of both high bytes at once: the time's, the lower
   one, may have borrowed from the clock's. */
static inline uint64_t cycles(const uint32_t *head, uint64_t start)
{
    const uint32_t seal = head[SEAL], began = start >> 32 & 255;
    const uint32_t borrowed = (began + (seal >> TURNS_SHIFT & 255)) >> 8;
    const uint64_t turns = ((seal >> (TURNS_SHIFT + 8)) + borrowed) & 255;
    return (turns << 32) + head[END_CLOCK] - head[START_CLOCK];
}

/* The smallest power of two that is not less, of a number from 1 on. */
static inline int64_t power(int64_t least)
{
    int64_t found = LEAST_KEPT;
    while (found < least)
        found *= 2;
    return found;
}

/* Room of the slab with the records of so many rows. An unfinished one keeps one place free if it can. */
static inline int64_t capacity_for(const uint32_t *head, int64_t kept, int64_t records)
{
    return power(records + (!is_finished(head) && kept < capacity_of(head)));
}

#endif
