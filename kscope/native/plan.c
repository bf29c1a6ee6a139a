/* Where slabs of the wire layout go in a capture, and their clocks. kscope/capture/expand.py does the same in numpy, and
   explains it. */

#include "expand.h"
#include "steps.h"

#include <stdatomic.h>
#include <string.h>

static const int64_t MOST_NS = (int64_t)1 << 50;
enum { LEAST_SLABS = 1 << 11 }; /* for a thread */

/* Records up to the last one that has arrived. */
static int64_t arrived(const uint32_t *head, int64_t capacity)
{
    const uint32_t *const records = head + UNIT_WORDS;
    while (capacity && !records[RECORD_WORDS * (capacity - 1) + 1])
        capacity--;
    return capacity;
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
