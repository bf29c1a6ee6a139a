/* Where each warp of a pool is, by its head and its records. kscope/watching/warps_in_numpy.py does the same in numpy;
   kscope/watching/warp_columns.py describes the columns. */

#include "threads.h"
#include "wire.h"

#include <stdlib.h>
#include <string.h>

enum { STEP = 1 << 8, HEAD_BYTES = UNIT_WORDS * 4 };
enum { TRIES = 8 };        /* times that a head is read again if its open word has halves of two stores */
enum { MOST_ANCHORS = 2 }; /* rows behind the last record: an anchor, and the number of anchors */
enum { RECORD_WORDS = 4, ID = 1, END, VALUE };
enum { KIND = 15, ANCHOR = 6, MORE = 7, HAS_MORE = 8, HASH_SHIFT = 4 };
enum { OPEN_CLOCK = 4, OPEN_ID, OPEN_VALUE, OPEN_SEQUENCE, SEQUENCE_SHIFT = 8 }; /* words of an unfinished head */
enum { LOG2_SHIFT = 10, SLOT_BITS = 16 };
enum { IN, BEHIND, NOWHERE, FINISHED };
enum {
    GRID, KERNEL_NUMBER, BLOCKS_X, BLOCKS_YZ, BLOCK_NUMBER, WARP, LANE, SM, STATE, TORN, REGION, REGION_VALUE, PARTIAL,
    ROLE, ENTERED, VERSION, COLUMNS
};

/* What one load reads: an open word of two stores shows in its halves only if each is read at once. */
typedef uint64_t __attribute__((may_alias)) half;

struct search {
    const uint32_t *units, *at, *book, *roles;
    const uint8_t *log2;
    int64_t slabs, role_count;
    uint32_t epoch;
    uint32_t *heads;
    uint8_t *searched; /* whether a slab's whole ring is */
    uint64_t *columns;
};

/* What a slab's records tell. */
struct records {
    uint32_t last, value, role;
    int has_more, left;
    uint64_t count;
};

static int is_record(const uint32_t *row)
{
    const uint32_t kind = row[ID] & KIND;
    return row[ID] && kind != ANCHOR && kind != MORE;
}

static int is_torn(const uint32_t *head)
{
    return !is_finished(head) && ((head[OPEN_SEQUENCE] >> SEQUENCE_SHIFT ^ head[OPEN_ID]) & KIND);
}

static void read_heads(void *context, int64_t index)
{
    const struct search *const search = context;
    const int64_t stop = step_end(index, search->slabs, STEP);
    for (int64_t i = index * STEP; i < stop; i++) {
        uint32_t *const head = search->heads + i * UNIT_WORDS;
        const volatile half *const from = (const half *)(search->units + (int64_t)search->at[i] * UNIT_WORDS);
        for (int tries = 0; tries <= TRIES; tries++) {
            for (int word = 0; word < UNIT_WORDS; word += 2) {
                const uint64_t read = from[word / 2];
                memcpy(head + word, &read, sizeof read);
            }
            if (!is_torn(head))
                break;
        }
    }
}

static int is_entry_of(const uint32_t *entry, const uint32_t *head, uint32_t epoch)
{
    uint32_t check = epoch;
    for (int word = 0; word < CHECK; word++)
        check ^= entry[word];
    const uint32_t log2 = head[START_TIME] >> SIZE_SHIFT, size = entry[LAYOUT] >> LOG2_SHIFT & 31;
    const uint32_t grid = entry[GRID_ID];
    return check == entry[CHECK] && (size == VARYING || size == log2) &&
           (grid & ((1 << SLOT_BITS) - 1)) == head[WHO] >> SLOT_SHIFT &&
           (!is_finished(head) || (head[SEAL] >> GRID_SHIFT & 255) == (grid >> SLOT_BITS & 255));
}

static int is_role(const struct search *search, uint32_t name)
{
    for (int64_t i = 0; i < search->role_count; i++)
        if (search->roles[i] == name)
            return 1;
    return 0;
}

static void take(struct records *found, const uint32_t *row)
{
    found->last = row[ID] >> HASH_SHIFT;
    found->value = row[VALUE];
    found->has_more = (row[ID] & HAS_MORE) != 0;
}

/* A finished warp's newest record; anchors may follow it. */
static void take_last(struct records *found, const uint32_t *rows, int64_t room, int64_t count)
{
    for (int64_t back = 1; back <= MOST_ANCHORS + 1 && back <= count; back++) {
        const uint32_t *const row = rows + RECORD_WORDS * ((count - back) & (room - 1));
        if (is_record(row)) {
            take(found, row);
            return;
        }
    }
}

/* All records of a ring. It may have turned: the newest record has the greatest end, as seen from any of them. */
static void search_ring(const struct search *search, struct records *found, const uint32_t *rows, int64_t room,
                        const uint32_t *head)
{
    const int is_open = !is_finished(head), has_entered = is_open && head[OPEN_SEQUENCE];
    const uint32_t *newest = NULL;
    uint64_t count = 0;
    for (const uint32_t *row = rows; row < rows + RECORD_WORDS * room; row += RECORD_WORDS) {
        if (!is_record(row))
            continue;
        const uint32_t name = row[ID] >> HASH_SHIFT;
        count++;
        if (name > found->role && is_role(search, name))
            found->role = name;
        if (has_entered && row[0] == head[OPEN_CLOCK] && name == head[OPEN_ID] >> HASH_SHIFT)
            found->left = 1;
        if (!newest || (int32_t)(row[END] - rows[END]) >= (int32_t)(newest[END] - rows[END]))
            newest = row;
    }
    if (is_open && newest)
        take(found, newest);
    if (is_open)
        found->count = count;
}

static void describe(void *context, int64_t index)
{
    const struct search *const search = context;
    const int64_t stop = step_end(index, search->slabs, STEP);
    for (int64_t i = index * STEP; i < stop; i++) {
        const uint32_t *const head = search->heads + i * UNIT_WORDS;
        const uint32_t *const rows = search->units + ((int64_t)search->at[i] + HEAD_UNITS) * UNIT_WORDS;
        const int64_t room = (int64_t)1 << search->log2[i];
        const uint32_t done = is_finished(head);
        uint32_t entry[LAUNCH_WORDS];
        memcpy(entry, search->book + (int64_t)(head[WHO] >> SLOT_SHIFT) * LAUNCH_WORDS, sizeof entry);
        if (!is_entry_of(entry, head, search->epoch))
            memset(entry, 0, sizeof entry);
        struct records found = {.count = head[COUNT]};
        if (done)
            take_last(&found, rows, room, head[COUNT]);
        if (search->searched[i])
            search_ring(search, &found, rows, room, head);
        const uint32_t sequence = done ? 0 : head[OPEN_SEQUENCE], clock = done ? 0 : head[OPEN_CLOCK];
        const uint32_t region = sequence ? head[OPEN_ID] >> HASH_SHIFT : 0;
        const int is_in = region && !found.left;
        uint64_t version = ((uint64_t)sequence << 32 | clock) * UINT64_C(0x9E3779B97F4A7C15);
        version ^= found.count << 33 ^ (uint64_t)found.value << 7 ^ found.last ^ (uint64_t)done << 63;
        uint64_t *const column = search->columns + i;
        const int64_t n = search->slabs;
        column[GRID * n] = two(entry + GRID_ID);
        column[KERNEL_NUMBER * n] = two(entry + KERNEL);
        column[BLOCKS_X * n] = entry[NCTAID_X];
        column[BLOCKS_YZ * n] = entry[NCTAID_YZ];
        column[BLOCK_NUMBER * n] = head[BLOCK] >> BLOCK_SHIFT;
        column[WARP * n] = head[WHO] & ((1 << EPOCH_SHIFT) - 1);
        column[LANE * n] = head[BLOCK] >> LANE_SHIFT & 31;
        column[SM * n] = head[WHO] >> SM_SHIFT & (SMS - 1);
        column[STATE * n] = done ? FINISHED : is_in ? IN : found.last ? BEHIND : NOWHERE;
        column[TORN * n] = (uint64_t)is_torn(head);
        column[REGION * n] = is_in ? region : found.last;
        column[REGION_VALUE * n] = is_in ? head[OPEN_VALUE] : found.value;
        column[PARTIAL * n] = !is_in && found.has_more;
        column[ROLE * n] = found.role;
        column[ENTERED * n] = sequence >> SEQUENCE_SHIFT;
        column[VERSION * n] = version;
    }
}

static int compare(const void *one, const void *other)
{
    const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

/* Keep unfinished warps, the finished ones of their launches, and those that name their role. Returns their number, or
   -1 without memory. */
static int64_t keep(uint64_t *columns, int64_t slabs)
{
    uint64_t *const open = malloc(sizeof *open * (size_t)(slabs + 1));
    const uint64_t *const grid = columns + GRID * slabs;
    int64_t count = 0, kept = 0;
    if (!open)
        return -1;
    for (int64_t i = 0; i < slabs; i++)
        if (columns[STATE * slabs + i] != FINISHED && !(count && open[count - 1] == grid[i]))
            open[count++] = grid[i];
    qsort(open, (size_t)count, sizeof *open, compare);
    for (int64_t i = 0; i < slabs; i++) {
        if (columns[STATE * slabs + i] == FINISHED && !columns[ROLE * slabs + i] &&
            !bsearch(grid + i, open, (size_t)count, sizeof *open, compare))
            continue;
        for (int64_t column = 0; column < COLUMNS; column++)
            columns[column * slabs + kept] = columns[column * slabs + i];
        kept++;
    }
    free(open);
    return kept;
}

/* Warps by their slabs.
   at, log2: of the slabs. book: the launch table. roles: hashes of the names by which warps record their role; of
   finished warps, the first `most` that recorded are searched for it. columns: (16, slabs), see keep(). version: of all
   warps together. Returns the number of kept warps, or -1 without memory. */
int64_t ks_warps(const uint32_t *units, int64_t slabs, const uint32_t *at, const uint8_t *log2, const uint32_t *book,
                 int64_t epoch, const uint32_t *roles, int64_t role_count, int64_t most, int64_t threads,
                 uint64_t *columns, uint64_t *version)
{
    uint32_t *const heads = malloc((size_t)slabs * (HEAD_BYTES + 1) + 1);
    if (!heads)
        return -1;
    uint8_t *const searched = (uint8_t *)(heads + slabs * UNIT_WORDS);
    struct search search = {units, at, book, roles, log2, slabs, role_count, (uint32_t)epoch, heads, searched, columns};
    const int64_t steps = steps_of(slabs, STEP);
    in_parallel(read_heads, &search, steps, worth(threads, slabs, 4 * STEP));
    for (int64_t i = 0; i < slabs; i++) {
        const uint32_t *const head = heads + i * UNIT_WORDS;
        searched[i] = !is_finished(head) || (head[COUNT] && most-- > 0);
    }
    in_parallel(describe, &search, steps, worth(threads, slabs, 4 * STEP));
    free(heads);
    for (int64_t i = 0; i < slabs; i++)
        *version ^= columns[VERSION * slabs + i];
    return keep(columns, slabs);
}
