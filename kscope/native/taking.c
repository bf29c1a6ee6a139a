/* Which slabs of a copy are taken. kscope_runtime/accounting.py does the same in numpy, and explains it. */

#include "steps.h"
#include "threads.h"
#include "wire.h"

#include <string.h>

enum { STEP = 1 << 14 }; /* slabs that are worth a thread */

struct taking {
    const uint32_t *units;
    int64_t least_log2, most_log2;
    int running;
    /* parts */
    const int64_t *stripe, *first;
    const uint32_t *tail;
    const uint8_t *whole;
    const uint32_t *skipped, *head;
    /* slabs */
    const int64_t *opens;
    const uint32_t *at;
    const uint8_t *log2, *closed;
    const int32_t *entry;
    /* stripes */
    const uint32_t *ring;
    uint32_t *found, *proven;
    const uint32_t *clean, *limit;
    /* what is taken */
    int64_t *free, *taken;
    uint32_t *taken_at;
    int32_t *taken_entry;
};

/* A part; positions are units from its tail. */
struct part {
    const struct taking *all;
    int64_t first, slabs;
    const uint32_t *at;
    const uint8_t *log2, *closed;
};

static int64_t start_of(const struct part *part, int64_t slab)
{
    return part->at[slab] - part->first;
}

static int64_t stop_of(const struct part *part, int64_t slab)
{
    return start_of(part, slab) + slab_units(part->log2[slab]);
}

/* Units of the slabs that start before `end`. */
static int64_t units_before(const struct part *part, int64_t end)
{
    int64_t units = 0;
    for (int64_t slab = 0; slab < part->slabs && start_of(part, slab) < end; slab++)
        units += slab_units(part->log2[slab]);
    return units;
}

static int64_t since(uint32_t position, uint32_t tail)
{
    const int32_t units = (int32_t)(position - tail);
    return units < 0 ? 0 : units;
}

static int64_t larger(int64_t one, int64_t other)
{
    return one > other ? one : other;
}

/* How far a part that ends before its stripe's head can be taken without cutting a slab in two. */
static int64_t uncut(const struct part *part, int64_t units)
{
    const struct taking *const all = part->all;
    for (int64_t unit = larger(part->slabs ? stop_of(part, part->slabs - 1) : 0, 1); unit < units; unit++) {
        const uint32_t *const head = all->units + (part->first + unit) * UNIT_WORDS;
        const int64_t log2 = head[START_TIME] >> SIZE_SHIFT;
        if (is_head(head) && log2 >= all->least_log2 && log2 <= all->most_log2)
            return unit;
    }
    return units;
}

static void account(const struct part *part, int64_t p)
{
    const struct taking *const all = part->all;
    const int64_t stripe = all->stripe[p], units = all->first[p + 1] - part->first;
    const uint32_t tail = all->tail[p], found = all->found[stripe];
    const int64_t head = (uint32_t)(all->head[p] - tail), ring = all->ring[stripe], whole = all->whole[p];
    const int64_t room = (uint32_t)(all->limit[stripe] - tail), clean = since(all->clean[stripe], tail);
    int64_t proven = since(all->proven[stripe], tail), reach = 0, until = -1;
    int gaps = 0;
    for (int64_t slab = 0; slab < part->slabs; slab++) {
        const int gap = start_of(part, slab) != reach;
        gaps |= gap;
        if (until < 0 && (gap || !part->closed[slab]))
            until = reach;
        reach = stop_of(part, slab);
    }
    int64_t free = until < 0 ? reach : until, taken = free;
    if (!gaps && (reach >= head || head <= room) && (whole || proven <= free)) {
        proven = larger(proven, reach >= head ? reach : free);
    } else {
        if (whole && (uint32_t)(tail + head - all->skipped[p] - found - units_before(part, head)) == 0)
            proven = head;
        int64_t slab = 0;
        for (free = 0; slab < part->slabs && part->closed[slab]; free = stop_of(part, slab++)) {
            const int64_t known = larger(free, proven), gap_to = start_of(part, slab);
            if (gap_to <= known)
                continue;
            const int64_t from = (uint32_t)(tail + known) & (ring - 1);
            if (known < clean || from + gap_to - known <= ring)
                break;
            const uint32_t gone = all->skipped[p] - (uint32_t)(tail + known - found - units_before(part, known));
            if (gone != gap_to - known)
                break;
            proven = gap_to;
        }
        const int64_t most = whole ? head : uncut(part, units);
        const int64_t kept = slab < part->slabs ? start_of(part, slab) : most;
        free = larger(free, proven < kept ? proven : kept);
        taken = units_before(part, free);
    }
    all->found[stripe] = found + (uint32_t)taken;
    all->proven[stripe] = tail + (uint32_t)larger(proven, free);
    all->free[p] = free;
}

static void count_slabs(void *context, int64_t p)
{
    const struct taking *const all = context;
    const int64_t opens = all->opens[p], first = all->first[p];
    const struct part part = {all, first, all->opens[p + 1] - opens, all->at + opens, all->log2 + opens, all->closed + opens};
    if (all->running)
        account(&part, p);
    int64_t low = 0, high = part.slabs;
    while (low < high) {
        const int64_t half = (low + high) / 2;
        if (start_of(&part, half) < all->free[p])
            low = half + 1;
        else
            high = half;
    }
    all->taken[p + 1] = low;
}

static void copy_slabs(void *context, int64_t p)
{
    const struct taking *const all = context;
    const int64_t from = all->opens[p], to = all->taken[p];
    const size_t count = (size_t)(all->taken[p + 1] - to);
    memcpy(all->taken_at + to, all->at + from, count * sizeof *all->at);
    memcpy(all->taken_entry + to, all->entry + from, count * sizeof *all->entry);
}

/* Account for the slabs of a copy, and gather those that are taken.
   stripe to head: (parts,) of the copy, and first one more. opens to entry: its slabs, as ks_claims() and ks_entries()
   give them. running: whether kernels run; otherwise free_units is given. ring to limit: of all stripes; found and
   proven are updated.
   free_units: (parts,) units that are free. taken: (parts + 1,) where each part's slabs begin among those that begin in
   its free units, whose columns are taken_at and taken_entry; these are not written if all slabs are taken. Returns the
   number of slabs that are. */
int64_t ks_take(const uint32_t *units, int64_t least_log2, int64_t most_log2, int64_t running, int64_t threads,
                int64_t parts, const int64_t *stripe, const int64_t *first, const uint32_t *tail, const uint8_t *whole,
                const uint32_t *skipped, const uint32_t *head, const int64_t *opens, const uint32_t *at,
                const uint8_t *log2, const uint8_t *closed, const int32_t *entry, const uint32_t *ring, uint32_t *found,
                uint32_t *proven, const uint32_t *clean, const uint32_t *limit, int64_t *free_units, int64_t *taken,
                uint32_t *taken_at, int32_t *taken_entry)
{
    struct taking all = {units, least_log2, most_log2, running != 0, stripe, first, tail, whole, skipped, head, opens,
                         at, log2, closed, entry, ring, found, proven, clean, limit, free_units, taken, taken_at,
                         taken_entry};
    threads = worth(threads, opens[parts], STEP);
    in_parallel(count_slabs, &all, parts, threads);
    taken[0] = 0;
    for (int64_t p = 0; p < parts; p++)
        taken[p + 1] += taken[p];
    if (taken[parts] < opens[parts])
        in_parallel(copy_slabs, &all, parts, threads);
    return taken[parts];
}
