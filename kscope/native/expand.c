/* Slabs of the wire layout become slabs of a capture. kscope/capture/expand.py does the same in numpy, and explains
   it. */

#include "expand.h"

#include <string.h>

enum { HEADER_WORDS = 32 };
enum { LOG2_SHIFT = 10, FLAG_MASK = 31 << 15, FLAG_STOP = 2 << 15, FLAG_ANCHORS = 16 << 15, SMID_SHIFT = 20 };
enum { ANCHOR_ID = 6, LAST_ANCHOR_ID = 1 << 4 | 6 };

static uint32_t at_least_one(uint32_t number)
{
    return number ? number : 1;
}

/* Cycles between an anchor's clock reads, at most; of an unfinished slab the most that a seal can hold. */
static uint32_t width(uint32_t seal)
{
    const uint32_t number = seal ? seal & MOST_WIDTH : MOST_WIDTH - 1;
    return number == MOST_WIDTH ? UINT32_MAX : number * WIDTH_CYCLES;
}

/* %ctaid of a linear block, x fastest, as x and as y | z << 16; and the block's rank in its cluster, with the shape. */
static void find_block(uint32_t block, const uint32_t *launch, uint32_t *x, uint32_t *yz, uint32_t *cluster)
{
    const uint32_t nx = at_least_one(launch[NCTAID_X]), ny = at_least_one(launch[NCTAID_YZ] & 0xFFFF);
    const uint32_t rest = block < nx ? 0 : block / nx, z = rest < ny ? 0 : rest / ny, y = rest - z * ny;
    const uint32_t shape = launch[CLUSTER] & 0xFFFFFF00;
    *x = block - rest * nx;
    *yz = y | z << 16;
    *cluster = 0;
    if (shape) {
        const uint32_t sx = at_least_one(shape >> 8 & 255), sy = at_least_one(shape >> 16 & 255);
        const uint32_t sz = at_least_one(shape >> 24);
        *cluster = shape | ((*x % sx + sx * (y % sy + sy * ((z & 0xFFFF) % sz))) & 255);
    }
}

static void put(uint32_t *words, uint64_t value)
{
    words[0] = (uint32_t)value;
    words[1] = (uint32_t)(value >> 32);
}

/* Anchors among the records that a warp wrote; of an unfinished one, among those that are there. */
static uint32_t anchors(const uint32_t *head, const uint32_t *launch, int64_t kept)
{
    const uint32_t *const records = head + UNIT_WORDS;
    if (!(launch[LAYOUT] & FLAG_ANCHORS))
        return 0;
    if (!(launch[LAYOUT] & FLAG_STOP) && is_finished(head) && head[COUNT] > kept) { /* its last one has their number */
        const uint32_t *const last = records + (head[COUNT] - 1) % (uint32_t)kept * RECORD_WORDS;
        return last[1] == LAST_ANCHOR_ID ? last[3] + 1 : 0;
    }
    uint32_t found = 0;
    for (int64_t i = 0; i < kept; i++)
        found += records[i * RECORD_WORDS + 1] == ANCHOR_ID;
    return found;
}

/* Write a slab. Returns its lines. */
static int64_t write_slab(const struct expansion *all, int64_t i, int64_t claim, uint32_t *header)
{
    const uint32_t *const head = all->units + (int64_t)all->at[i] * UNIT_WORDS;
    const uint32_t *const launch = all->launches + (int64_t)all->entry[i] * LAUNCH_WORDS;
    const uint64_t start = start_ns(head, launch);
    const int64_t kept = all->kept[i];
    const struct expanded about_rows = expanded(head, kept, &all->layouts, all->entry[i]);
    const int64_t capacity = capacity_for(head, kept, about_rows.records), filled = padding(&about_rows, capacity);
    const uint32_t who = head[WHO], seal = is_finished(head) ? head[SEAL] : 0, about = width(seal);
    uint32_t x, yz, cluster;
    find_block(head[BLOCK] >> BLOCK_SHIFT, launch, &x, &yz, &cluster);
    const uint32_t place = (head[BLOCK] >> LANE_SHIFT & 31) | (who & 31) << 5 |
                           (uint32_t)__builtin_ctzll((unsigned long long)capacity) << LOG2_SHIFT |
                           (launch[LAYOUT] & FLAG_MASK) | (who >> SM_SHIFT & (SMS - 1)) << SMID_SHIFT;
    const uint64_t clock = all->start_clock[i], kernel = two(launch + KERNEL), grid = two(launch + GRID_ID);
    const uint32_t words[] = {all->header_word, all->epoch, x, yz, launch[NCTAID_X], launch[NCTAID_YZ], launch[NTID],
                              place, cluster, all->origin[claim] + all->at[i], all->stripe[claim], about};
    const uint64_t pairs = kernel ^ grid ^ clock ^ start;
    uint32_t check = (uint32_t)pairs ^ (uint32_t)(pairs >> 32);
    for (size_t word = 0; word < sizeof words / sizeof *words; word++)
        check ^= words[word];
    header[0] = words[0];
    header[1] = words[1];
    put(header + 2, kernel);
    put(header + 4, grid);
    memcpy(header + 6, words + 2, 9 * 4);
    header[15] = check;
    put(header + 16, clock);
    put(header + 18, start);
    header[20] = about;
    memset(header + 21, 0, (HEADER_WORDS - 21) * 4);
    if (seal) {
        const uint64_t end = clock + cycles(head, start);
        put(header + 24, end);
        put(header + 26, end_ns(head, launch, start));
        header[28] = about;
        header[29] = about_rows.written + (uint32_t)filled;
        header[31] = all->done_word ^ header[29] ^ (uint32_t)end;
    }
    uint32_t *const records = header + HEADER_WORDS;
    if (about_rows.is_mixed) {
        header[30] = (uint32_t)filled;
        write_mixed(head, kept, &all->layouts, all->entry[i], &about_rows, capacity, records);
        return HEADER_LINES + capacity / RECORDS_PER_LINE;
    }
    header[30] = anchors(head, launch, kept);
    memcpy(records, head + UNIT_WORDS, (size_t)kept * RECORD_WORDS * 4);
    memset(records + kept * RECORD_WORDS, 0, (size_t)(capacity - kept) * RECORD_WORDS * 4);
    return HEADER_LINES + capacity / RECORDS_PER_LINE;
}

void write_step(void *context, int64_t index)
{
    const struct expansion *const all = context;
    const int64_t stop = step_end(index, all->slabs, all->step);
    int64_t line = all->line[index], claim = 0;
    for (int64_t after = all->claims; after - claim > 1;) { /* the last claim that opens at or before the first slab */
        const int64_t half = (claim + after) / 2;
        if (all->opens[half] <= index * all->step)
            claim = half;
        else
            after = half;
    }
    for (int64_t i = index * all->step; i < stop; i++) {
        while (i >= all->opens[claim + 1])
            claim++;
        if (all->entry[i] >= 0)
            line += write_slab(all, i, claim, all->lines + line * LINE_WORDS);
    }
}

/* Write planned slabs to lines.
   opens: (claims + 1,) where the slabs of each stripe begin. stripe, origin: (claims,) its index, and the position of
   the unit 0. */
int64_t ks_expand(const uint32_t *units, int64_t slabs, int64_t step, const uint32_t *at, const int32_t *entry,
                  const uint32_t *kept, const int64_t *line, const uint64_t *start_clock, int64_t claims,
                  const int64_t *opens, const uint32_t *stripe, const uint32_t *origin, const uint32_t *launches,
                  const uint32_t *layouts, const int32_t *first, const int32_t *stop, int64_t header_word, int64_t done_word, int64_t epoch, int64_t threads, uint32_t *lines)
{
    const int64_t steps = steps_of(slabs, step);
    struct expansion all = {units, slabs, step, at, entry, kept, line, start_clock, claims, opens, stripe, origin,
                            launches, {layouts, first, stop}, (uint32_t)header_word, (uint32_t)done_word, (uint32_t)epoch, lines};
    in_parallel(write_step, &all, steps, worth(threads, line[steps], LEAST_LINES));
    return 0;
}
