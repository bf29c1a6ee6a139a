#ifndef KSCOPE_CLOCK_ROWS_H
#define KSCOPE_CLOCK_ROWS_H

/* Rows with three clocks become two or three records. kscope/capture/clock_rows.py does the same, and explains it. */

#include "wire.h"

#include <string.h>

enum { ROW_WORDS = 4, LAYOUT_WORDS = 8, CLOCKS = 14, EXTRA_ID = 1 << 4 | CLOCKS, CLOCKS_MOST_RECORDS = 1 << 20 };
enum { LAST_ANCHOR = 1 << 4 | 6, END_CLOCK_SHIFT = 2 };
static const int CLOCK_WORDS[] = {0, 2, 3, 0};

/* The layouts of launches. table: rows of LAYOUT_WORDS: id, number of records, and of each its id and its clocks.
   first, stop: the rows that belong to each launch's kernel. */
struct layouts {
    const uint32_t *table;
    const int32_t *first, *stop;
};

/* A slab as records. is_mixed: its kernel writes rows of three clocks. written: records that the warp wrote.
   is_full: there may have been more than are here. */
struct expanded {
    int64_t records;
    uint32_t written;
    int is_mixed, is_full;
};

static inline const uint32_t *layout_of(const struct layouts *all, int32_t entry, uint32_t id)
{
    if ((id & 15) != CLOCKS)
        return 0;
    for (int32_t i = all->first[entry]; i < all->stop[entry]; i++)
        if (all->table[(int64_t)i * LAYOUT_WORDS] == id)
            return all->table + (int64_t)i * LAYOUT_WORDS;
    return 0;
}

/* head: of a wire slab. kept: rows that are kept of it. */
static inline struct expanded expanded(const uint32_t *head, int64_t kept, const struct layouts *all, int32_t entry)
{
    struct expanded found = {kept, head[COUNT], 0, 0};
    const int64_t room = capacity_of(head);
    const uint32_t *const rows = head + UNIT_WORDS;
    int64_t records = 0;
    if (all->first[entry] == all->stop[entry])
        return found;
    for (int64_t i = 0; i < kept; i++) {
        const uint32_t id = rows[i * ROW_WORDS + 1], *const layout = layout_of(all, entry, id);
        records += layout ? layout[1] : id != EXTRA_ID;
    }
    if (records >= CLOCKS_MOST_RECORDS)
        return found;
    found = (struct expanded){records, (uint32_t)records, 1, !is_finished(head) && kept == room};
    if (is_finished(head) && head[COUNT] > room) {
        const uint32_t *const last = rows + (head[COUNT] - 1) % (uint32_t)room * ROW_WORDS;
        int64_t written = last[1] == EXTRA_ID ? (int64_t)head[COUNT] - 1 + last[3] : head[COUNT] - room + records;
        written = written < records ? records : written;
        found.written = written > UINT32_MAX - CLOCKS_MOST_RECORDS ? UINT32_MAX - CLOCKS_MOST_RECORDS : (uint32_t)written;
        found.is_full = found.written > records;
    }
    return found;
}

/* Rows that fill a slab of which all is taken. */
static inline int64_t padding(const struct expanded *about, int64_t capacity)
{
    return about->is_full ? capacity - about->records : 0;
}

/* Write the records of a mixed slab, and what fills the slab of a capture. */
static inline void write_mixed(const uint32_t *head, int64_t kept, const struct layouts *all, int32_t entry,
                               const struct expanded *about, int64_t capacity, uint32_t *to)
{
    const uint32_t *const rows = head + UNIT_WORDS;
    const int done = is_finished(head);
    const int64_t room = capacity_of(head), many = padding(about, capacity);
    const int64_t first = done && head[COUNT] > room ? head[COUNT] % (uint32_t)room : 0;
    int64_t slot = about->is_full && done ? about->written + many : 0;
    uint32_t clock = head[START_CLOCK];
    memset(to, 0, (size_t)capacity * ROW_WORDS * 4);
    for (int64_t i = 0; done && i < many; i++, slot++)
        memcpy(to + (slot & (capacity - 1)) * ROW_WORDS, (const uint32_t[]){clock, LAST_ANCHOR, clock, 0}, ROW_WORDS * 4);
    for (int64_t i = 0; i < kept; i++) {
        const uint32_t *const row = rows + (first + i) % room * ROW_WORDS, *const layout = layout_of(all, entry, row[1]);
        for (uint32_t part = 0; layout && part < layout[1]; part++, slot++) {
            const uint32_t clocks = layout[3 + 2 * part], id = layout[2 + 2 * part];
            const uint32_t start = row[CLOCK_WORDS[clocks & 3]], end = row[CLOCK_WORDS[clocks >> END_CLOCK_SHIFT & 3]];
            memcpy(to + (slot & (capacity - 1)) * ROW_WORDS, (const uint32_t[]){start, id, clock = end, 0}, ROW_WORDS * 4);
        }
        if (!layout && row[1] != EXTRA_ID) {
            memcpy(to + (slot++ & (capacity - 1)) * ROW_WORDS, row, ROW_WORDS * 4);
            clock = row[2];
        }
    }
    for (int64_t i = 0; !done && i < many; i++, slot++)
        memcpy(to + (slot & (capacity - 1)) * ROW_WORDS, (const uint32_t[]){clock, LAST_ANCHOR, clock, 0}, ROW_WORDS * 4);
}

#endif
