#ifndef KSCOPE_CLOCK_ROWS_H
#define KSCOPE_CLOCK_ROWS_H

/* Rows with three clocks, or with short ones, become two or three records. kscope/capture/clock_rows.py does the same, and explains it. */

#include "wire.h"

#include <string.h>

enum { ROW_WORDS = 4, LAYOUT_WORDS = 8, CLOCKS = 14, EXTRA_ID = 1 << 4 | CLOCKS, CLOCKS_MOST_RECORDS = 1 << 20 };
enum { LAST_ANCHOR = 1 << 4 | 6, END_CLOCK_SHIFT = 2, SHORT_CLOCKS = 1 << 8, VALUE_SHORT_SHIFT = 4, SHORTS_SHIFT = 3 };
static const int CLOCK_WORDS[] = {0, 2, 3, 0};

/* The layouts of launches. table: rows of LAYOUT_WORDS: id, number of records, and of each its id and its clocks; with
   SHORT_CLOCKS, of each its id, its clocks and its value's short, from 1 on, and the value's constant part.
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

/* last: the layout of the row before, which is likely to be the same; 0 without one. */
static inline const uint32_t *layout_of(const struct layouts *all, int32_t entry, uint32_t id, const uint32_t *last)
{
    if ((id & 15) != CLOCKS)
        return 0;
    if (last && last[0] == id)
        return last;
    for (int32_t i = all->first[entry]; i < all->stop[entry]; i++)
        if (all->table[(int64_t)i * LAYOUT_WORDS] == id)
            return all->table + (int64_t)i * LAYOUT_WORDS;
    return 0;
}

static inline uint32_t parts_of(const uint32_t *layout)
{
    return layout[1] & (SHORT_CLOCKS - 1);
}

/* The records of a row. */
static inline void make_parts(const uint32_t *row, const uint32_t *layout, uint32_t parts[3][ROW_WORDS])
{
    if (!(layout[1] & SHORT_CLOCKS)) {
        for (uint32_t part = 0; part < parts_of(layout); part++) {
            const uint32_t id = layout[2 + 2 * part], clocks = layout[3 + 2 * part];
            const uint32_t start = row[CLOCK_WORDS[clocks & 3]], end = row[CLOCK_WORDS[clocks >> END_CLOCK_SHIFT & 3]];
            memcpy(parts[part], (const uint32_t[]){start, id, end, 0}, ROW_WORDS * 4);
        }
        return;
    }
    const uint32_t shorts[] = {row[2] & 0xFFFF, row[2] >> 16, row[3] & 0xFFFF, row[3] >> 16};
    uint32_t clocks[4] = {row[0]};
    for (int i = 1; i < 4; i++)
        clocks[i] = clocks[i - 1] + shorts[i - 1];
    for (uint32_t part = 0; part < 2; part++) {
        const uint32_t *const about = layout + 2 + 3 * part, some = about[1], which = some >> VALUE_SHORT_SHIFT;
        const uint32_t value = about[2] + (which ? shorts[(which - 1) & 3] << SHORTS_SHIFT : 0);
        const uint32_t start = clocks[some & 3], end = clocks[some >> END_CLOCK_SHIFT & 3];
        memcpy(parts[part], (const uint32_t[]){start, about[0], end, value}, ROW_WORDS * 4);
    }
}

/* head: of a wire slab. kept: rows that are kept of it. */
static inline struct expanded expanded(const uint32_t *head, int64_t kept, const struct layouts *all, int32_t entry)
{
    struct expanded found = {kept, head[COUNT], 0, 0};
    const int64_t room = capacity_of(head);
    const uint32_t *const rows = head + UNIT_WORDS;
    const uint32_t *layout = 0;
    int64_t records = 0;
    if (all->first[entry] == all->stop[entry])
        return found;
    for (int64_t i = 0; i < kept; i++) {
        const uint32_t id = rows[i * ROW_WORDS + 1];
        layout = layout_of(all, entry, id, layout);
        records += layout ? parts_of(layout) : id != EXTRA_ID;
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
    uint32_t clock = head[START_CLOCK], parts[3][ROW_WORDS];
    const uint32_t *layout = 0;
    int64_t at = first;
    memset(to, 0, (size_t)capacity * ROW_WORDS * 4);
    for (int64_t i = 0; done && i < many; i++, slot++)
        memcpy(to + (slot & (capacity - 1)) * ROW_WORDS, (const uint32_t[]){clock, LAST_ANCHOR, clock, 0}, ROW_WORDS * 4);
    for (int64_t i = 0; i < kept; i++) {
        const uint32_t *const row = rows + at * ROW_WORDS;
        at = at + 1 == room ? 0 : at + 1;
        layout = layout_of(all, entry, row[1], layout);
        if (layout)
            make_parts(row, layout, parts);
        for (uint32_t part = 0; layout && part < parts_of(layout); part++, slot++)
            memcpy(to + (slot & (capacity - 1)) * ROW_WORDS, parts[part], ROW_WORDS * 4);
        clock = layout ? parts[parts_of(layout) - 1][2] : clock;
        if (!layout && row[1] != EXTRA_ID) {
            memcpy(to + (slot++ & (capacity - 1)) * ROW_WORDS, row, ROW_WORDS * 4);
            clock = row[2];
        }
    }
    for (int64_t i = 0; !done && i < many; i++, slot++)
        memcpy(to + (slot & (capacity - 1)) * ROW_WORDS, (const uint32_t[]){clock, LAST_ANCHOR, clock, 0}, ROW_WORDS * 4);
}

#endif
