/* Claims: finding the slabs in copies of claimed device memory. kscope_runtime/slab_search.py and accounting.py do the
   same in numpy. */

#include "wire.h"

/* Whether the first `needed` records behind a head have arrived: an id is never 0, and memory is cleared before use. */
static int arrived(const uint32_t *head, int64_t needed)
{
    for (int64_t i = 0; i < needed; i++)
        if (!head[UNIT_WORDS + 4 * i + 1])
            return 0;
    return 1;
}

/* Slabs in parts of stripes.
   first: (parts + 1,) units where parts begin. tail: position of each part's first unit.
   settled: records of warps that ended before it have arrived, ns; 0: none is known to.
   at to over: columns of the slabs, room for one per three units. Returns their number. */
int64_t ks_claims(const uint32_t *units, int64_t parts, const int64_t *first, const uint32_t *tail, int64_t least_log2,
                  int64_t most_log2, int64_t settled, int64_t *at, int64_t *piece, int64_t *size, uint8_t *closed,
                  uint32_t *position, uint8_t *over)
{
    const uint32_t steps = (uint32_t)(settled >> TIME_SHIFT);
    int64_t found = 0;
    for (int64_t part = 0; part < parts; part++) {
        for (int64_t unit = first[part]; unit < first[part + 1];) {
            const uint32_t *const head = units + unit * UNIT_WORDS;
            const int64_t log2 = head[START_TIME] >> SIZE_SHIFT, capacity = (int64_t)1 << log2;
            const int64_t needed = HEAD_UNITS + capacity / RECORDS_PER_UNIT;
            if (!is_head(head) || log2 < least_log2 || log2 > most_log2 || unit + needed > first[part + 1]) {
                unit++;
                continue;
            }
            const int64_t count = head[COUNT];
            const int early = settled && (int32_t)(steps - head[END_TIME]) > 0;
            at[found] = unit;
            piece[found] = part;
            size[found] = needed;
            closed[found] = head[SEAL] && (early || arrived(head, count < capacity ? count : capacity));
            position[found] = tail[part] + (uint32_t)(unit - first[part]);
            over[found++] = count > capacity;
            unit += needed;
        }
    }
    return found;
}

enum { SLOTS = 1 << 16 };

static int is_entry_of(const uint32_t *head, int64_t row, const uint8_t *grid, const uint8_t *log2)
{
    const uint32_t seal = head[SEAL];
    return log2[row] == head[START_TIME] >> SIZE_SHIFT && (!seal || grid[row] == (uint8_t)(seal >> GRID_SHIFT));
}

/* The entry of each slab's launch, among the newest ones of the slots and, behind these, the ones before.
   reread: unfinished warps need an entry that was read anew. grid, log2: (2 * SLOTS,) of each row. stale: (SLOTS,) rows
   to read anew. number: (2 * SLOTS,) all -1, before and after.
   used: rows of launches, room for 2 * SLOTS. entry: index in used, -1 of another session, -2 unknown.
   missing: (SLOTS,) slots whose entry must be read. Returns how many rows are used. */
int64_t ks_entries(const uint32_t *units, int64_t slabs, const int64_t *at, int64_t epoch, int64_t reread,
                   const uint8_t *grid, const uint8_t *log2, const uint8_t *stale, int32_t *number, int64_t *used,
                   int64_t *entry, uint8_t *missing)
{
    int64_t found = 0;
    for (int64_t i = 0; i < slabs; i++) {
        const uint32_t *const head = units + at[i] * UNIT_WORDS;
        int64_t row = head[WHO] >> SLOT_SHIFT;
        if ((head[WHO] >> EPOCH_SHIFT & 1) != (uint32_t)(epoch & 1)) {
            entry[i] = -1;
            continue;
        }
        const int newest = is_entry_of(head, row, grid, log2);
        if (!newest || stale[row] || (reread && !head[SEAL]))
            missing[row] = 1;
        if (!newest && !is_entry_of(head, row += SLOTS, grid, log2)) {
            entry[i] = -2;
            continue;
        }
        if (number[row] < 0) {
            number[row] = (int32_t)found;
            used[found++] = row;
        }
        entry[i] = number[row];
    }
    for (int64_t i = 0; i < found; i++)
        number[used[i]] = -1;
    return found;
}

/* How far each part's slabs follow each other, in units from its beginning.
   opens: (parts + 1,) where each part's slabs begin. free: up to the first open slab or gap. reach: up to the end of the
   last slab. gaps: whether there is a gap before a slab. */
int64_t ks_extents(int64_t parts, const int64_t *opens, const int64_t *first, const int64_t *at, const int64_t *units,
                   const uint8_t *closed, int64_t *free, int64_t *reach, uint8_t *gaps)
{
    for (int64_t part = 0; part < parts; part++) {
        int64_t end = 0, until = -1;
        gaps[part] = 0;
        for (int64_t i = opens[part]; i < opens[part + 1]; i++) {
            const int gap = at[i] - first[part] != end;
            gaps[part] |= gap;
            if (until < 0 && (gap || !closed[i]))
                until = end;
            end = at[i] - first[part] + units[i];
        }
        free[part] = until < 0 ? end : until;
        reach[part] = end;
    }
    return 0;
}
