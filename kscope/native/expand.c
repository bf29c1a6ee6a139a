/* Slabs of the wire layout become slabs of a capture. kscope/capture/expand.py does the same in numpy, and explains
   it. */

#include "expand.h"
#include "steps.h"

#include <stdatomic.h>
#include <string.h>

enum { HEADER_LINES = 2, HEADER_WORDS = 32, RECORDS_PER_LINE = 4, RECORD_WORDS = 4, LEAST_KEPT = 4 };
enum { LOG2_SHIFT = 10, FLAG_MASK = 31 << 15, FLAG_STOP = 2 << 15, FLAG_ANCHORS = 16 << 15, SMID_SHIFT = 20 };
enum { ANCHOR_ID = 6, LAST_ANCHOR_ID = 1 << 4 | 6 };
static const int64_t MOST_NS = (int64_t)1 << 50;

enum { GLOBALTIMER_BIT = 1 << 15, TIMER_ROUNDING = (1 << TIME_SHIFT) - 1 };
enum { LEAST_SLABS = 1 << 11 }; /* for a thread */

static uint64_t low_bits(uint64_t value, int bits)
{
    return value & (((uint64_t)1 << bits) - 1);
}

/* The first time that ends in the low bits, from `earlier` ns before another on, and from 0 on. */
static uint64_t after(uint64_t time, uint64_t low, int bits, uint64_t earlier)
{
    const uint64_t from = time < earlier ? 0 : time - earlier;
    return from + low_bits(low - from, bits);
}

static uint64_t lasted_ns(const uint32_t *head)
{
    const uint64_t turns = (uint64_t)(head[SEAL] >> TURNS_SHIFT & 255) << 32;
    return low_bits(turns + (uint32_t)(head[END_TIME] << TIME_SHIFT) - (uint32_t)(head[START_TIME] << TIME_SHIFT), 40);
}

/* %globaltimer at the start, ns. */
static uint64_t start_ns(const uint32_t *head, const uint32_t *launch)
{
    const uint64_t time = two(launch + TIME);
    if (!is_finished(head))
        return after(time, (uint32_t)(head[START_TIME] << TIME_SHIFT), 32, (uint64_t)1 << 30);
    return after(time, ((uint64_t)head[END_TIME] << TIME_SHIFT) - lasted_ns(head), 37, (uint64_t)1 << 35);
}

/* %globaltimer at the end, ns. */
static uint64_t end_ns(const uint32_t *head, const uint32_t *launch, uint64_t start)
{
    return start + lasted_ns(head) + (launch[LAYOUT] & GLOBALTIMER_BIT ? TIMER_ROUNDING : 0);
}

/* From the start's clock to the end's. The seal has the difference of both high bytes at once: the time's, the lower
   one, may have borrowed from the clock's. */
static uint64_t cycles(const uint32_t *head, uint64_t start)
{
    const uint32_t seal = head[SEAL], began = start >> 32 & 255;
    const uint32_t borrowed = (began + (seal >> TURNS_SHIFT & 255)) >> 8;
    const uint64_t turns = ((seal >> (TURNS_SHIFT + 8)) + borrowed) & 255;
    return (turns << 32) + head[END_CLOCK] - head[START_CLOCK];
}

/* Records up to the last one that has arrived. */
static int64_t arrived(const uint32_t *head, int64_t capacity)
{
    const uint32_t *const records = head + UNIT_WORDS;
    while (capacity && !records[RECORD_WORDS * (capacity - 1) + 1])
        capacity--;
    return capacity;
}

/* The smallest power of two that is not less, of a number from 1 on. */
static int64_t power(int64_t least)
{
    int64_t found = LEAST_KEPT;
    while (found < least)
        found *= 2;
    return found;
}

/* Slabs of one SM in a step: the first one, and their last anchor. Clocks have all bits, and the right high words when
   `ahead` is added: a clock follows from the one before, so those of a step are off by the same. */
struct group {
    int64_t first;
    uint64_t clock, time, ahead;
    int32_t sm;
};

struct plan {
    const uint32_t *units;
    int64_t slabs, step;
    const uint32_t *at;
    const int32_t *entry;
    const uint32_t *launches;
    double rate;
    struct layouts layouts;
    uint32_t *kept;
    int64_t *line;
    uint64_t *start_clock;
    struct group *groups; /* most_groups of each step */
    int64_t most_groups;
    int32_t *counts;    /* groups of each step */
    uint16_t *group_of; /* of each slab */
    atomic_int_fast64_t large;
};

/* Room of the slab with the records of so many rows. An unfinished one keeps one place free if it can. */
static int64_t capacity_for(const uint32_t *head, int64_t kept, int64_t records)
{
    return power(records + (!is_finished(head) && kept < capacity_of(head)));
}

static int has_more_blocks(const uint32_t *launch)
{
    const uint64_t yz = (uint64_t)(launch[NCTAID_YZ] & 0xFFFF) * (launch[NCTAID_YZ] >> 16);
    return launch[NCTAID_X] * yz > (uint64_t)1 << (32 - BLOCK_SHIFT);
}

/* The start clock of a slab that begins at a time, from its SM's anchor before. */
static uint64_t following(const uint32_t *head, uint64_t now, uint64_t clock, uint64_t time, double rate)
{
    int64_t since = (int64_t)(now - time);
    since = since < -MOST_NS ? -MOST_NS : since > MOST_NS ? MOST_NS : since;
    const uint64_t expected = clock + (uint64_t)(int64_t)((double)since * rate);
    return expected + (uint64_t)(int64_t)(int32_t)(head[START_CLOCK] - (uint32_t)expected);
}

/* Records that slabs keep, the lines of the step, and clocks within it. */
static void measure(void *context, int64_t index)
{
    struct plan *const plan = context;
    struct group *const groups = plan->groups + index * plan->most_groups;
    const int64_t stop = step_end(index, plan->slabs, plan->step);
    uint16_t group_of[SMS];
    int32_t count = 0;
    int64_t lines = 0, large = 0;
    memset(group_of, 0xFF, sizeof group_of);
    for (int64_t i = index * plan->step; i < stop; i++) {
        plan->kept[i] = 0;
        plan->start_clock[i] = 0;
        plan->group_of[i] = SMS;
        if (plan->entry[i] < 0)
            continue;
        const uint32_t *const head = plan->units + (int64_t)plan->at[i] * UNIT_WORDS;
        const uint32_t *const launch = plan->launches + (int64_t)plan->entry[i] * LAUNCH_WORDS;
        const int finished = is_finished(head);
        const int64_t capacity = capacity_of(head);
        const int64_t written = head[COUNT] < capacity ? head[COUNT] : capacity;
        const int64_t kept = finished ? written : arrived(head, capacity);
        const int64_t records = expanded(head, kept, &plan->layouts, plan->entry[i]).records;
        lines += HEADER_LINES + capacity_for(head, kept, records) / RECORDS_PER_LINE;
        large += has_more_blocks(launch);
        const int32_t sm = head[WHO] >> SM_SHIFT & (SMS - 1);
        const uint64_t now = start_ns(head, launch);
        uint64_t start = head[START_CLOCK];
        if (group_of[sm] == UINT16_MAX) {
            group_of[sm] = (uint16_t)count;
            groups[count].sm = sm;
            groups[count++].first = i;
        } else {
            const struct group *const mine = groups + group_of[sm];
            start = following(head, now, mine->clock, mine->time, plan->rate);
        }
        struct group *const mine = groups + group_of[sm];
        mine->time = finished ? end_ns(head, launch, now) : now;
        mine->clock = finished ? start + cycles(head, now) : start;
        plan->kept[i] = (uint32_t)kept;
        plan->start_clock[i] = start;
        plan->group_of[i] = group_of[sm];
    }
    plan->line[index + 1] = lines;
    plan->counts[index] = count;
    atomic_fetch_add(&plan->large, large);
}

/* Find the high words of each SM's clocks, step by step. known: (SMS,) whether an SM has an anchor. */
static void join_clocks(const struct plan *plan, int64_t steps, int64_t first_turn, uint64_t *clock, uint64_t *time,
                        uint8_t *known)
{
    for (int64_t index = 0; index < steps; index++)
        for (int32_t i = 0; i < plan->counts[index]; i++) {
            struct group *const one = plan->groups + index * plan->most_groups + i;
            const uint32_t *const head = plan->units + (int64_t)plan->at[one->first] * UNIT_WORDS;
            const uint32_t *const launch = plan->launches + (int64_t)plan->entry[one->first] * LAUNCH_WORDS;
            const uint64_t start = known[one->sm] ? following(head, start_ns(head, launch), clock[one->sm], time[one->sm],
                                                              plan->rate)
                                                  : ((uint64_t)first_turn << 32) + head[START_CLOCK];
            one->ahead = start - head[START_CLOCK];
            clock[one->sm] = one->clock + one->ahead;
            time[one->sm] = one->time;
            known[one->sm] = 1;
        }
}

static void add_turns(void *context, int64_t index)
{
    const struct plan *const plan = context;
    const struct group *const groups = plan->groups + index * plan->most_groups;
    for (int64_t i = index * plan->step; i < step_end(index, plan->slabs, plan->step); i++)
        plan->start_clock[i] += plan->group_of[i] < SMS ? groups[plan->group_of[i]].ahead : 0;
}

/* Where slabs go, and their start clocks. Slabs with an entry below 0 are left out.
   step: slabs of a step. first_turn: high word of an SM's first clock. clock, time: (SMS,) each SM's last anchor,
   updated. layouts, first, stop: see clock_rows.h. line: (steps + 1,) the first line of each step's slabs, and the
   number of all lines. Returns how many slabs are of grids with more blocks than a head can number, or -1 without
   memory. */
int64_t ks_plan(const uint32_t *units, int64_t slabs, int64_t step, const uint32_t *at, const int32_t *entry,
                const uint32_t *launches, double rate, int64_t first_turn, int64_t threads, const uint32_t *layouts,
                const int32_t *first, const int32_t *stop, uint64_t *clock, uint64_t *time, uint32_t *kept,
                int64_t *line, uint64_t *start_clock)
{
    const int64_t steps = steps_of(slabs, step), most = step < SMS ? step : SMS;
    const size_t of_groups = sizeof(struct group) * (size_t)(steps * most), of_counts = sizeof(int32_t) * (size_t)steps;
    char *const memory = kept_memory(of_groups + of_counts + sizeof(uint16_t) * (size_t)slabs);
    uint8_t known[SMS];
    if (!memory)
        return -1;
    threads = worth(threads, slabs, LEAST_SLABS);
    struct plan plan = {units, slabs, step, at, entry, launches, rate, {layouts, first, stop}, kept, line, start_clock,
                        (struct group *)memory, most, (int32_t *)(memory + of_groups),
                        (uint16_t *)(memory + of_groups + of_counts), 0};
    line[0] = 0;
    for (int sm = 0; sm < SMS; sm++)
        known[sm] = time[sm] != 0;
    in_parallel(measure, &plan, steps, threads);
    for (int64_t index = 0; index < steps; index++)
        line[index + 1] += line[index];
    join_clocks(&plan, steps, first_turn, clock, time, known);
    in_parallel(add_turns, &plan, steps, threads);
    return plan.large;
}

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
