#ifndef KSCOPE_WIRE_H
#define KSCOPE_WIRE_H

/* The wire layout, kscope/capture/wire.py. */

#include "native.h"

enum { UNIT_WORDS = 8, HEAD_UNITS = 1, RECORDS_PER_UNIT = 2, LAUNCH_WORDS = 16 };

/* words of a head */
enum { WHO, BLOCK, START_CLOCK, START_TIME, END_CLOCK, END_TIME, COUNT, SEAL };
enum { EPOCH_SHIFT = 5, SM_SHIFT = 6, SMS = 1 << 10, SLOT_SHIFT = 16, LANE_SHIFT = 4, BLOCK_SHIFT = 9 };
enum { MOST_WIDTH = 255, WIDTH_CYCLES = 4, GRID_SHIFT = 8, TURNS_SHIFT = 16, TIME_SHIFT = 5, SIZE_SHIFT = 27 };

/* words of a launch's entry */
enum { VARYING = 31 }; /* log2 of an entry whose heads have the size */
enum { GRID_ID = 0, KERNEL = 2, NCTAID_X = 4, NCTAID_YZ, NTID, CLUSTER, TIME = 8, LAYOUT = 10, CHECK };

/* words of a stripe */
enum { BASE = 4, MASK = 6, STRIPE_WORDS = 32 };

static inline int is_head(const uint32_t *unit)
{
    return !(unit[BLOCK] & 15) && (unit[WHO] | unit[BLOCK] | unit[START_CLOCK] | unit[START_TIME]);
}

/* The end is there. The second row of an unfinished head is 0, or an open word. */
static inline int is_finished(const uint32_t *head)
{
    return (head[SEAL] & MOST_WIDTH) != 0;
}

static inline uint64_t two(const uint32_t *words)
{
    return words[0] | (uint64_t)words[1] << 32;
}

static inline int64_t slab_units(int64_t log2)
{
    return HEAD_UNITS + ((int64_t)1 << log2) / RECORDS_PER_UNIT;
}

static inline int64_t capacity_of(const uint32_t *head)
{
    return (int64_t)1 << (head[START_TIME] >> SIZE_SHIFT);
}

#endif
