/* Slabs: finding their headers among captured lines, reading header fields into columns, and decoding records.
   The layout is that of kscope/capture/layout.py. decoding/slabs.py and decoding/columns.py do the same in numpy. */

#include "threads.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_WORDS = 16, HEADER_LINES = 2, RECORDS_PER_LINE = 4 };
enum { MAGIC_WORD, PLACE_WORD = 11, CHECK_WORD = 15, LAST_CHECKED_WORD = 20 };

static uint32_t header_check(const uint32_t *header)
{
    uint32_t sum = 0;
    for (int word = 0; word <= LAST_CHECKED_WORD; word++)
        if (word != CHECK_WORD)
            sum ^= header[word];
    return sum;
}

enum { CHUNK_LINES = 1 << 14 }; /* 1 MiB, which fits into a core's second cache */

struct chunk {
    int64_t from, to;   /* lines that a header may begin at */
    int64_t room, most; /* first place in the columns, and how many there are */
    int64_t found, end; /* headers, and the end of the last one's slab */
    int full;
};

struct search {
    const uint32_t *lines;
    int64_t count, header_word, log2_shift, least_log2, most_log2;
    struct chunk *chunks;
    int64_t *at;
    uint8_t *state;
};

static void find_from(const struct search *search, struct chunk *chunk, int64_t line)
{
    int64_t found = 0, end = line; /* written once: other threads use the chunks beside it */
    while (line < chunk->to) {
        const uint32_t *header = search->lines + line * LINE_WORDS;
        const uint32_t magic = header[MAGIC_WORD];
        if (magic >> 16 != (uint32_t)search->header_word >> 16) {
            line++;
            continue;
        }
        if (found == chunk->most) {
            chunk->full = 1;
            break;
        }
        const int64_t log2 = header[PLACE_WORD] >> search->log2_shift & 31;
        const int64_t size = HEADER_LINES + ((int64_t)1 << log2) / RECORDS_PER_LINE;
        const int ours = magic >> 8 == (uint32_t)search->header_word >> 8;
        const int sane = log2 >= search->least_log2 && log2 <= search->most_log2;
        const int whole = ours && sane && header_check(header) == header[CHECK_WORD];
        const int fits = line + size <= search->count;
        search->at[chunk->room + found] = line;
        search->state[chunk->room + found++] = !ours ? 3 : !whole ? 1 : !fits ? 2 : 0;
        end = line += whole && fits ? size : 1;
    }
    chunk->end = end;
    chunk->found = found;
}

static void find_chunk(void *context, int64_t index)
{
    const struct search *const search = context;
    find_from(search, search->chunks + index, search->chunks[index].from);
}

/* Lines that look like headers and are in no slab before them, ascending.
   at, state: room for one entry per `spacing` lines and per CHUNK_LINES, and one more. state: see decoding/slabs.py.
   Returns their number; more than lines if that is too little room; -1 without memory. */
int64_t ks_find(const uint32_t *lines, int64_t count, int64_t header_word, int64_t log2_shift, int64_t least_log2,
                int64_t most_log2, int64_t spacing, int64_t threads, int64_t *at, uint8_t *state)
{
    const int64_t last = count > 0 ? count - 1 : 0, chunks = steps_of(last, CHUNK_LINES);
    struct search search = {lines, count, header_word, log2_shift, least_log2, most_log2, NULL, at, state};
    if (!(search.chunks = malloc(sizeof(struct chunk) * (size_t)(chunks + 1))))
        return -1;
    for (int64_t index = 0; index < chunks; index++) {
        const int64_t from = index * CHUNK_LINES, to = step_end(index, last, CHUNK_LINES);
        const int64_t room = from / spacing + index;
        search.chunks[index] = (struct chunk){from, to, room, to / spacing + index + 1 - room, 0, 0, 0};
    }
    in_parallel(find_chunk, &search, chunks, threads);
    int64_t found = 0, end = 0;
    for (int64_t index = 0; index < chunks && found <= count; index++) {
        struct chunk *const chunk = search.chunks + index;
        /* a record that looks like a header, in a slab that begins before the chunk */
        if (chunk->found && at[chunk->room] < end) {
            chunk->full = 0;
            find_from(&search, chunk, end);
        }
        memmove(at + found, at + chunk->room, sizeof(int64_t) * (size_t)chunk->found);
        memmove(state + found, state + chunk->room, (size_t)chunk->found);
        found = chunk->full ? count + 1 : found + chunk->found;
        end = chunk->end > end ? chunk->end : end;
    }
    free(search.chunks);
    return found;
}

enum { HEADERS_AT_ONCE = 128 }; /* a core's first cache holds them */

/* Copy fields of headers at lines at[0..count) into columns. offsets, sizes (4 or 8): of each field, in bytes. */
int64_t ks_headers(const uint8_t *lines, const int64_t *at, int64_t count, int64_t fields, const int64_t *offsets,
                const int64_t *sizes, void *const *columns)
{
    for (int64_t first = 0; first < count; first += HEADERS_AT_ONCE) {
        const int64_t last = first + HEADERS_AT_ONCE < count ? first + HEADERS_AT_ONCE : count;
        for (int64_t field = 0; field < fields; field++) {
            const uint8_t *const from = lines + offsets[field];
            if (sizes[field] == 4)
                for (int64_t i = first; i < last; i++)
                    memcpy((uint32_t *)columns[field] + i, from + at[i] * (LINE_WORDS * 4), 4);
            else
                for (int64_t i = first; i < last; i++)
                    memcpy((uint64_t *)columns[field] + i, from + at[i] * (LINE_WORDS * 4), 8);
        }
    }
    return 0;
}

/* Decode the records of slabs that lasted less than 2^32 ticks: differences of low words are exact.
   Counts garbled and missing records and unknown ids in counts[0..3). */
int64_t ks_records(const uint32_t *rows, int64_t slabs, const int64_t *row, const int64_t *capacity, const int64_t *kept,
                const int64_t *turn, const int64_t *first_tick, const uint32_t *span, const uint32_t *slot_id,
                const uint16_t *slot_region, int64_t multiplier, int64_t shift, int64_t missing, int64_t *start,
                int64_t *duration, uint16_t *region, uint32_t *value, int64_t *counts)
{
    int64_t out = 0, garbled = 0, absent = 0, unknown = 0;
    for (int64_t slab = 0; slab < slabs; slab++) {
        const uint32_t low = (uint32_t)first_tick[slab], most = span[slab];
        const int64_t mask = capacity[slab] - 1;
        for (int64_t i = 0; i < kept[slab]; i++, out++) {
            const uint32_t *record = rows + 4 * (row[slab] + ((turn[slab] + i) & mask));
            const uint32_t id = record[1], begin = record[0] - low, end = record[2] - low;
            const int wrong = (end < begin || end > most) && id != 0;
            const uint32_t slot = (id * (uint32_t)multiplier) >> shift;
            garbled += wrong;
            absent += id == 0;
            unknown += slot_id[slot] != id;
            start[out] = first_tick[slab] + begin;
            duration[out] = wrong ? -1 : (int64_t)(uint32_t)(end - begin);
            region[out] = id == 0 ? (uint16_t)missing : slot_region[slot];
            value[out] = record[3];
        }
    }
    counts[0] = garbled;
    counts[1] = absent;
    counts[2] = unknown;
    return 0;
}
