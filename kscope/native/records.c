/* Records: how many each slab keeps, and their columns. decoding/columns.py does the same in numpy. */

#include "threads.h"

#include <stdatomic.h>

enum { HEADER_LINES = 2, RECORDS_PER_LINE = 4, RECORD_WORDS = 4 };
enum { SLABS_STEP = 1 << 13, RECORDS_STEP = 1 << 15 };

struct plan {
    int64_t slabs;
    const uint32_t *count;
    const uint8_t *log2, *finished;
    const int64_t *first_tick, *last_tick;
    int64_t *written, *kept;
    uint8_t *is_short;
    atomic_int_fast64_t full, longer;
};

static void plan_slabs(void *context, int64_t index)
{
    struct plan *const plan = context;
    int64_t full = 0, longer = 0;
    for (int64_t i = index * SLABS_STEP; i < step_end(index, plan->slabs, SLABS_STEP); i++) {
        const int64_t written = plan->count[i], room = (int64_t)1 << plan->log2[i];
        const uint64_t ticks = (uint64_t)plan->last_tick[i] - (uint64_t)plan->first_tick[i];
        plan->written[i] = written;
        plan->kept[i] = written < room ? written : room;
        plan->is_short[i] = plan->finished[i] && !(ticks >> 32);
        full += written > room;
        longer += !plan->is_short[i];
    }
    atomic_fetch_add(&plan->full, full);
    atomic_fetch_add(&plan->longer, longer);
}

/* Of each slab: records written, those kept, and whether it finished within 2^32 ticks. Returns 1 if any did not, plus
   2 if any wrote more than it keeps. */
int64_t ks_kept(int64_t slabs, int64_t threads, const uint32_t *count, const uint8_t *log2, const uint8_t *finished,
                const int64_t *first_tick, const int64_t *last_tick, int64_t *written, int64_t *kept,
                uint8_t *is_short)
{
    struct plan plan = {slabs, count, log2, finished, first_tick, last_tick, written, kept, is_short, 0, 0};
    in_parallel(plan_slabs, &plan, steps_of(slabs, SLABS_STEP), worth(threads, slabs, SLABS_STEP));
    return (plan.longer != 0) + 2 * (plan.full != 0);
}

struct decoding {
    const uint32_t *rows;
    int64_t slabs, step;
    const int64_t *line;
    const uint8_t *log2;
    const int64_t *kept, *turn;
    int64_t turns;
    const int64_t *first_tick, *last_tick, *out;
    const uint32_t *slot_id;
    const uint16_t *slot_region;
    uint32_t multiplier;
    int64_t shift;
    uint16_t missing, no_region;
    int64_t *start, *duration;
    uint16_t *region;
    uint32_t *value;
    atomic_int_fast64_t garbled, absent, unknown, regionless;
};

static void decode_slabs(void *context, int64_t index)
{
    struct decoding *const all = context;
    int64_t garbled = 0, absent = 0, unknown = 0, regionless = 0;
    for (int64_t slab = index * all->step; slab < step_end(index, all->slabs, all->step); slab++) {
        const int64_t first = all->first_tick[slab], mask = ((int64_t)1 << all->log2[slab]) - 1;
        const int64_t turn = all->turn[slab * all->turns];
        const uint32_t low = (uint32_t)first, most = (uint32_t)(all->last_tick[slab] - first);
        const uint32_t *const rows = all->rows + (all->line[slab] + HEADER_LINES) * RECORDS_PER_LINE * RECORD_WORDS;
        int64_t out = all->out[slab];
        for (int64_t i = 0; i < all->kept[slab]; i++, out++) {
            const uint32_t *const record = rows + RECORD_WORDS * ((turn + i) & mask);
            const uint32_t id = record[1], begin = record[0] - low, end = record[2] - low;
            const int wrong = (end < begin || end > most) && id != 0;
            const uint32_t slot = (id * all->multiplier) >> all->shift;
            const uint16_t region = id == 0 ? all->missing : all->slot_region[slot];
            garbled += wrong;
            absent += id == 0;
            unknown += all->slot_id[slot] != id;
            regionless += region >= all->no_region;
            all->start[out] = first + begin;
            all->duration[out] = wrong ? -1 : (int64_t)(uint32_t)(end - begin);
            all->region[out] = region;
            all->value[out] = record[3];
        }
    }
    atomic_fetch_add(&all->garbled, garbled);
    atomic_fetch_add(&all->absent, absent);
    atomic_fetch_add(&all->unknown, unknown);
    atomic_fetch_add(&all->regionless, regionless);
}

/* Decode the records of slabs that lasted less than 2^32 ticks: differences of low words are exact.
   turn: the slot of each slab's oldest record, `turns` entries a slab. out: where its records go.
   counts: (4,) garbled and missing records, unknown ids, and regions from no_region on. */
int64_t ks_records(const uint32_t *rows, int64_t slabs, int64_t threads, const int64_t *line, const uint8_t *log2,
                   const int64_t *kept, const int64_t *turn, int64_t turns, const int64_t *first_tick,
                   const int64_t *last_tick, const int64_t *out, const uint32_t *slot_id, const uint16_t *slot_region,
                   int64_t multiplier, int64_t shift, int64_t missing, int64_t no_region, int64_t *start,
                   int64_t *duration, uint16_t *region, uint32_t *value, int64_t *counts)
{
    if (!slabs)
        return 0;
    const int64_t records = out[slabs - 1] + kept[slabs - 1] + 1, step = slabs * RECORDS_STEP / records + 1;
    struct decoding all = {rows, slabs, step < SLABS_STEP ? step : SLABS_STEP, line, log2, kept, turn, turns,
                           first_tick, last_tick, out, slot_id, slot_region, (uint32_t)multiplier, shift,
                           (uint16_t)missing, (uint16_t)no_region, start, duration, region, value, 0, 0, 0, 0};
    in_parallel(decode_slabs, &all, steps_of(slabs, all.step), worth(threads, records, RECORDS_STEP));
    counts[0] = all.garbled;
    counts[1] = all.absent;
    counts[2] = all.unknown;
    counts[3] = all.regionless;
    return 0;
}
