/* Slabs of the wire layout become slabs of a capture. kscope/capture/expand.py does the same in numpy, and explains it. */

#include "wire.h"

#include <string.h>

enum { LINE_WORDS = 16, HEADER_LINES = 2, HEADER_WORDS = 32, RECORDS_PER_LINE = 4, RECORD_WORDS = 4, LEAST_KEPT = 4 };
enum { LOG2_SHIFT = 10, FLAG_MASK = 31 << 15, SMID_SHIFT = 20 };
static const int64_t MOST_NS = (int64_t)1 << 50;

enum { GLOBALTIMER_BIT = 1 << 15, TIMER_ROUNDING = (1 << TIME_SHIFT) - 1 };

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
    if (!head[SEAL])
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

/* Where slabs go, and their start clocks. first_turn: high word of an SM's first clock. line: (slabs + 1,). clock, time: (SMS,) each SM's last anchor, updated. */
int64_t ks_plan(const uint32_t *units, int64_t slabs, const int64_t *at, const int64_t *entry, const uint32_t *launches,
                double rate, int64_t first_turn, uint64_t *clock, uint64_t *time, int64_t *kept, int64_t *line, uint64_t *start_clock)
{
    line[0] = 0;
    for (int64_t i = 0; i < slabs; i++) {
        const uint32_t *const head = units + at[i] * UNIT_WORDS, *const launch = launches + entry[i] * LAUNCH_WORDS;
        const int64_t capacity = capacity_of(head);
        const int done = head[SEAL] != 0;
        int64_t needed = kept[i] = done ? head[COUNT] < capacity ? head[COUNT] : capacity : arrived(head, capacity);
        if (!done && needed < capacity)
            needed++;
        line[i + 1] = line[i] + HEADER_LINES + power(needed) / RECORDS_PER_LINE;

        const int sm = head[WHO] >> SM_SHIFT & (SMS - 1);
        const uint64_t now = start_ns(head, launch);
        uint64_t start = ((uint64_t)first_turn << 32) + head[START_CLOCK];
        if (time[sm]) {
            int64_t since = (int64_t)(now - time[sm]);
            since = since < -MOST_NS ? -MOST_NS : since > MOST_NS ? MOST_NS : since;
            const uint64_t expected = clock[sm] + (uint64_t)(int64_t)((double)since * rate);
            start = expected + (uint64_t)(int64_t)(int32_t)(head[START_CLOCK] - (uint32_t)expected);
        }
        start_clock[i] = start;
        time[sm] = done ? end_ns(head, launch, now) : now;
        clock[sm] = done ? start + cycles(head, now) : start;
    }
    return 0;
}

static uint32_t at_least_one(uint32_t number)
{
    return number ? number : 1;
}

/* Cycles between an anchor's clock reads, at most; of an unfinished slab the most that a seal could say. */
static uint32_t width(uint32_t seal)
{
    const uint32_t number = seal ? seal & MOST_WIDTH : MOST_WIDTH - 1;
    return number == MOST_WIDTH ? UINT32_MAX : number * WIDTH_CYCLES;
}

/* %ctaid and %cluster_ctarank of a linear block, x fastest. */
static void write_block(uint32_t *header, uint32_t block, const uint32_t *launch)
{
    const uint32_t nx = at_least_one(launch[NCTAID_X]), ny = at_least_one(launch[NCTAID_YZ] & 0xFFFF);
    const uint32_t rest = block < nx ? 0 : block / nx, x = block - rest * nx;
    const uint32_t z = rest < ny ? 0 : rest / ny, y = rest - z * ny;
    header[6] = x;
    header[7] = y | z << 16;
    const uint32_t shape = launch[CLUSTER] & 0xFFFFFF00;
    if (shape) {
        const uint32_t sx = at_least_one(shape >> 8 & 255), sy = at_least_one(shape >> 16 & 255);
        const uint32_t sz = at_least_one(shape >> 24);
        header[12] = shape | ((x % sx + sx * (y % sy + sy * ((z & 0xFFFF) % sz))) & 255);
    }
}

static void put(uint32_t *words, uint64_t value)
{
    words[0] = (uint32_t)value;
    words[1] = (uint32_t)(value >> 32);
}

/* Write slabs [from, to) of a plan to lines. */
int64_t ks_expand(const uint32_t *units, int64_t from, int64_t to, const int64_t *at, const int64_t *entry,
                  const int64_t *kept, const int64_t *line, const uint64_t *start_clock, const uint32_t *stripe,
                  const uint32_t *position, const uint32_t *launches, int64_t header_word, int64_t done_word,
                  int64_t epoch, uint32_t *lines)
{
    for (int64_t i = from; i < to; i++) {
        const uint32_t *const head = units + at[i] * UNIT_WORDS, *const launch = launches + entry[i] * LAUNCH_WORDS;
        uint32_t *const header = lines + line[i] * LINE_WORDS;
        const int64_t capacity = (line[i + 1] - line[i] - HEADER_LINES) * RECORDS_PER_LINE;
        const uint32_t who = head[WHO], seal = head[SEAL];
        const uint64_t start = start_ns(head, launch);
        memset(header, 0, HEADER_WORDS * 4);
        header[0] = (uint32_t)header_word;
        header[1] = (uint32_t)epoch;
        memcpy(header + 2, launch + KERNEL, 8);
        memcpy(header + 4, launch + GRID_ID, 8);
        write_block(header, head[BLOCK] >> BLOCK_SHIFT, launch);
        memcpy(header + 8, launch + NCTAID_X, 12);
        header[11] = (head[BLOCK] >> LANE_SHIFT & 31) | (who & 31) << 5 |
                     (uint32_t)__builtin_ctzll((unsigned long long)capacity) << LOG2_SHIFT |
                     (launch[LAYOUT] & FLAG_MASK) | (who >> SM_SHIFT & (SMS - 1)) << SMID_SHIFT;
        header[13] = position[i];
        header[14] = stripe[i];
        put(header + 16, start_clock[i]);
        put(header + 18, start);
        header[20] = width(seal);
        uint32_t check = 0;
        for (int word = 0; word <= 20; word++)
            check ^= header[word];
        header[15] = check;
        if (seal) {
            const uint64_t end = start_clock[i] + cycles(head, start);
            put(header + 24, end);
            put(header + 26, end_ns(head, launch, start));
            header[28] = header[20];
            header[29] = head[COUNT];
            header[31] = (uint32_t)done_word ^ head[COUNT] ^ (uint32_t)end;
        }
        uint32_t *const records = header + HEADER_WORDS;
        memcpy(records, head + UNIT_WORDS, (size_t)kept[i] * RECORD_WORDS * 4);
        memset(records + kept[i] * RECORD_WORDS, 0, (size_t)(capacity - kept[i]) * RECORD_WORDS * 4);
    }
    return 0;
}
