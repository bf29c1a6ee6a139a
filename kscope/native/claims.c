/* Claims: finding the slabs in copies of claimed device memory, and their launches. kscope_runtime/slab_search.py and
   launch_table.py do the same in numpy. */

#include "steps.h"
#include "threads.h"
#include "wire.h"

#include <stdatomic.h>
#include <string.h>

enum { CHUNK_UNITS = 1 << 14 }; /* half a MiB, which fits into a core's second cache */
enum { STEP = 1 << 10, LEAST_SLABS = 1 << 11 }; /* slabs that a thread looks at, at a time, and that are worth one */

/* Whether the first `needed` records after a head have arrived: an id is never 0, and memory is cleared before use. */
static int arrived(const uint32_t *head, int64_t needed)
{
    for (int64_t i = 0; i < needed; i++)
        if (!head[UNIT_WORDS + 4 * i + 1])
            return 0;
    return 1;
}

static void search_from(const struct claims *search, struct chunk *chunk, int64_t unit)
{
    const uint32_t steps = (uint32_t)(search->settled >> TIME_SHIFT);
    int64_t place = chunk->room, end = unit, overrun = 0; /* written once: other threads use the chunks beside it */
    while (unit < chunk->to) {
        const uint32_t *const head = search->units + unit * UNIT_WORDS;
        /* read once: kernels may write to a pool file meanwhile, and its readers trust the size */
        const int64_t log2 = __atomic_load_n(&head[START_TIME], __ATOMIC_RELAXED) >> SIZE_SHIFT, size = slab_units(log2);
        if (!is_head(head) || log2 < search->least_log2 || log2 > search->most_log2 || unit + size > chunk->stop) {
            unit++;
            continue;
        }
        const int64_t capacity = (int64_t)1 << log2, count = head[COUNT];
        const int early = search->settled && (int32_t)(steps - head[END_TIME]) > 0;
        search->at[place] = (uint32_t)unit;
        search->log2[place] = (uint8_t)log2;
        if (search->closed) {
            search->closed[place] = is_finished(head) && (early || arrived(head, count < capacity ? count : capacity));
            overrun += search->over[place] = is_finished(head) && count > capacity;
        }
        place++;
        end = unit += size;
    }
    chunk->end = end;
    chunk->overrun = overrun;
    chunk->found = place - chunk->room;
}

static void search_chunk(void *context, int64_t index)
{
    const struct claims *const search = context;
    search_from(search, search->chunks + index, search->chunks[index].from);
}

/* Close the gaps between the chunks' slabs. */
static int64_t gather(const struct claims *search, struct chunk *chunk, int64_t end, int64_t to)
{
    /* only in damaged memory does a slab before contain what looks like a head */
    if (chunk->found && search->at[chunk->room] < end)
        search_from(search, chunk, end);
    const size_t count = (size_t)chunk->found;
    memmove(search->at + to, search->at + chunk->room, count * sizeof *search->at);
    memmove(search->log2 + to, search->log2 + chunk->room, count);
    if (search->closed) {
        memmove(search->closed + to, search->closed + chunk->room, count);
        memmove(search->over + to, search->over + chunk->room, count);
    }
    return to + chunk->found;
}

int begin_claims(struct claims *search, int64_t threads)
{
    const int64_t *const first = search->first;
    const int64_t most = (first[search->parts] - first[0]) / CHUNK_UNITS + search->parts;
    int64_t count = 0;
    search->chunks = kept_memory(sizeof *search->chunks * (size_t)(most + 1));
    if (!search->chunks)
        return -1;
    for (int64_t part = 0; part < search->parts; part++)
        for (int64_t from = first[part]; from < first[part + 1]; from += CHUNK_UNITS, count++) {
            const int64_t stop = first[part + 1], to = from + CHUNK_UNITS < stop ? from + CHUNK_UNITS : stop;
            search->chunks[count] = (struct chunk){from, to, stop, (from - first[0]) / 3 + count, 0, 0, 0};
        }
    search->count = count;
    begin_parallel(&search->work, search_chunk, search, count, (threads < count ? threads : count) - 1, 1);
    return 0;
}

int64_t finish_claims(struct claims *search, int64_t *opens, int64_t *overrun)
{
    const struct chunk *const chunks = search->chunks;
    int64_t found = 0, end = 0, index = 0;
    finish_parallel(&search->work);
    *overrun = 0;
    for (int64_t part = 0; part < search->parts; part++) {
        opens[part] = found;
        for (; index < search->count && chunks[index].from < search->first[part + 1]; index++) {
            found = gather(search, search->chunks + index, end, found);
            end = chunks[index].end > end ? chunks[index].end : end;
            *overrun += chunks[index].overrun;
        }
    }
    opens[search->parts] = found;
    return found;
}

/* Slabs in parts of stripes.
   first: (parts + 1,) units where parts begin. settled: records of warps that ended before it have arrived, ns; 0: none
   is known to. at to over: columns of the slabs, room for one per three units, per part and per CHUNK_UNITS, and one
   more; closed and over may be NULL. opens: (parts + 1,) where each part's slabs begin. overrun: how many are over.
   Returns the number of slabs, or -1 without memory. */
int64_t ks_claims(const uint32_t *units, int64_t parts, const int64_t *first, int64_t least_log2, int64_t most_log2,
                  int64_t settled, int64_t threads, uint32_t *at, uint8_t *log2, uint8_t *closed, uint8_t *over,
                  int64_t *opens, int64_t *overrun)
{
    struct claims search = {.units = units, .least_log2 = least_log2, .most_log2 = most_log2, .settled = settled, .at = at,
                            .log2 = log2, .closed = closed, .over = over, .parts = parts, .first = first};
    return begin_claims(&search, threads) ? -1 : finish_claims(&search, opens, overrun);
}

enum { SLOT_BITS = 16, SLOTS = 1 << SLOT_BITS, LOG2_SHIFT = 10 };

struct table {
    const uint32_t *units;
    int64_t slabs;
    const uint32_t *at;
    const uint8_t *closed;
    uint32_t epoch;
    int reread;
    const uint8_t *grid, *log2;
    const double *read_at;
    double stale;
    int32_t *entry;
    uint8_t *missing, *used;
    int32_t *number; /* of each entry that is used */
    atomic_int_fast64_t unknown;
};

static int is_entry_of(const uint32_t *head, int32_t row, const uint8_t *grid, const uint8_t *log2)
{
    const uint32_t seal = head[SEAL];
    const int sized = log2[row] == VARYING || log2[row] == head[START_TIME] >> SIZE_SHIFT;
    return sized && (!is_finished(head) || grid[row] == (uint8_t)(seal >> GRID_SHIFT));
}

static void match(void *context, int64_t index)
{
    struct table *const table = context;
    const int64_t stop = step_end(index, table->slabs, STEP);
    int64_t unknown = 0;
    for (int64_t i = index * STEP; i < stop; i++) {
        const uint32_t *const head = table->units + (int64_t)table->at[i] * UNIT_WORDS;
        int32_t row = head[WHO] >> SLOT_SHIFT;
        if ((table->closed && !table->closed[i]) || (head[WHO] >> EPOCH_SHIFT & 1) != (table->epoch & 1)) {
            table->entry[i] = -1;
            continue;
        }
        const int newest = is_entry_of(head, row, table->grid, table->log2);
        if (!newest || table->read_at[row] <= table->stale || (table->reread && !is_finished(head)))
            __atomic_store_n(table->missing + row, 1, __ATOMIC_RELAXED);
        if (!newest && !is_entry_of(head, row += SLOTS, table->grid, table->log2)) {
            row = -2;
            unknown++;
        }
        table->entry[i] = row;
        if (row >= 0 && !__atomic_load_n(table->used + row, __ATOMIC_RELAXED))
            __atomic_store_n(table->used + row, 1, __ATOMIC_RELAXED);
    }
    atomic_fetch_add(&table->unknown, unknown);
}

static void number_entries(void *context, int64_t index)
{
    struct table *const table = context;
    const int64_t stop = step_end(index, table->slabs, STEP);
    for (int64_t i = index * STEP; i < stop; i++)
        if (table->entry[i] >= 0)
            table->entry[i] = table->number[table->entry[i]];
}

/* The entry of each slab's launch, among the newest ones of the slots and, after these, the previous ones.
   closed: (slabs,) slabs whose entry is needed; NULL for all. reread: unfinished warps need an entry that was read anew.
   grid, log2: (2 * SLOTS,) of each entry. read_at, stale: (SLOTS,) when entries were read, and when they must have been
   read at least. missing: (SLOTS,) slots whose entry must be read; unless `last`, entry and rows are then undefined.
   entry: index into rows, -1 of another session or not needed, -2 unknown. rows: (2 * SLOTS,) the entries in use,
   ascending. counts: their number, or -1 if some must be read, and how many slabs' entries are unknown. Returns -1
   without memory. */
int64_t ks_entries(const uint32_t *units, int64_t slabs, const uint32_t *at, const uint8_t *closed, int64_t epoch,
                   int64_t reread, const uint8_t *grid, const uint8_t *log2, const double *read_at, double stale, int64_t last,
                   int64_t threads, int32_t *entry, uint8_t *missing, int32_t *rows, int64_t *counts)
{
    int32_t *const number = kept_memory(2 * SLOTS * (sizeof *number + 1));
    if (!number)
        return -1;
    uint8_t *const used = (uint8_t *)(number + 2 * SLOTS);
    struct table table = {units, slabs, at, closed, (uint32_t)epoch, reread != 0, grid, log2, read_at, stale, entry,
                          missing, used, number, 0};
    threads = worth(threads, slabs, LEAST_SLABS);
    memset(missing, 0, SLOTS);
    memset(used, 0, 2 * SLOTS);
    in_parallel(match, &table, steps_of(slabs, STEP), threads);
    counts[0] = -1;
    counts[1] = table.unknown;
    if (last || !memchr(missing, 1, SLOTS)) {
        int32_t count = 0;
        for (const uint8_t *next = used; (next = memchr(next, 1, (size_t)(used + 2 * SLOTS - next))); next++) {
            number[next - used] = count;
            rows[count++] = (int32_t)(next - used);
        }
        counts[0] = count;
        in_parallel(number_entries, &table, steps_of(slabs, STEP), threads);
    }
    return 0;
}

static int is_entry(const uint32_t *entry, int64_t slot, uint32_t epoch)
{
    uint32_t sum = epoch;
    for (int word = 0; word < CHECK; word++)
        sum ^= entry[word];
    return sum == entry[CHECK] && entry[LAYOUT] && (entry[GRID_ID] & (SLOTS - 1)) == slot;
}

/* Keep `count` entries that were read of the slots from `first` on: those of this session, and of a slot the one before
   if it is of another launch. rows, grid, log2: (2 * SLOTS,) the newest entry of each slot, and after these the previous
   ones. Returns the slot after the newest launch of those read, or -2 if none is new. */
int64_t ks_learn(const uint32_t *read, int64_t count, int64_t first, int64_t epoch, uint32_t *rows, uint8_t *grid,
                 uint8_t *log2)
{
    const size_t bytes = LAUNCH_WORDS * sizeof *rows;
    uint64_t newest = 0;
    int64_t next = -2;
    if (!memcmp(read, rows + first * LAUNCH_WORDS, (size_t)count * bytes))
        return next;
    for (int64_t slot = first; slot < first + count; slot++, read += LAUNCH_WORDS) {
        uint32_t *const row = rows + slot * LAUNCH_WORDS;
        if (!is_entry(read, slot, (uint32_t)epoch))
            continue;
        if (log2[slot] && two(row + GRID_ID) != two(read + GRID_ID)) {
            memcpy(row + SLOTS * LAUNCH_WORDS, row, bytes);
            grid[slot + SLOTS] = grid[slot];
            log2[slot + SLOTS] = log2[slot];
        }
        memcpy(row, read, bytes);
        grid[slot] = (uint8_t)(two(read + GRID_ID) >> SLOT_BITS);
        log2[slot] = read[LAYOUT] >> LOG2_SHIFT & 31;
        if (next < 0 || two(read + TIME) > newest) {
            newest = two(read + TIME);
            next = (slot + 1) & (SLOTS - 1);
        }
    }
    return next;
}
