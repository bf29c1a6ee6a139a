/* Slabs: finding their headers among captured lines, and reading header fields into columns.
   The layout is that of kscope/capture/layout.py. decoding/slabs.py does the same in numpy. */

#include "threads.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_WORDS = 16, HEADER_LINES = 2, HEADER_WORDS = LINE_WORDS * HEADER_LINES, RECORDS_PER_LINE = 4 };
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
    uint32_t varying[HEADER_WORDS]; /* bits in which headers differ from the first one found */
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
    uint32_t varying[HEADER_WORDS] = {0};
    const uint32_t *one = NULL;
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
        one = one ? one : header;
        for (int word = 0; word < HEADER_WORDS; word++)
            varying[word] |= header[word] ^ one[word];
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
    memcpy(chunk->varying, varying, sizeof varying);
}

static void find_chunk(void *context, int64_t index)
{
    const struct search *const search = context;
    find_from(search, search->chunks + index, search->chunks[index].from);
}

/* Lines that look like headers and are in no slab before them, ascending.
   at, state: room for one entry per `spacing` lines and per CHUNK_LINES, and one more. state: see decoding/slab_search.py.
   varying: (HEADER_WORDS,) bits that differ between headers. Returns their number; more than lines if that is too little
   room; -1 without memory. */
int64_t ks_find(const uint32_t *lines, int64_t count, int64_t header_word, int64_t log2_shift, int64_t least_log2,
                int64_t most_log2, int64_t spacing, int64_t threads, int64_t *at, uint8_t *state,
                uint32_t *varying)
{
    const int64_t last = count > 0 ? count - 1 : 0, chunks = steps_of(last, CHUNK_LINES);
    struct search search = {lines, count, header_word, log2_shift, least_log2, most_log2, NULL, at, state};
    if (!(search.chunks = malloc(sizeof(struct chunk) * (size_t)(chunks + 1))))
        return -1;
    for (int64_t index = 0; index < chunks; index++) {
        const int64_t from = index * CHUNK_LINES, to = step_end(index, last, CHUNK_LINES);
        const int64_t room = from / spacing + index;
        search.chunks[index] = (struct chunk){from, to, room, to / spacing + index + 1 - room, 0, 0, 0, {0}};
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
        for (int word = 0; word < HEADER_WORDS && chunk->found; word++)
            varying[word] |= chunk->varying[word] | (lines[at[chunk->room] * LINE_WORDS + word] ^
                                                     lines[at[found ? 0 : chunk->room] * LINE_WORDS + word]);
        memmove(at + found, at + chunk->room, sizeof(int64_t) * (size_t)chunk->found);
        memmove(state + found, state + chunk->room, (size_t)chunk->found);
        found = chunk->full ? count + 1 : found + chunk->found;
        end = chunk->end > end ? chunk->end : end;
    }
    free(search.chunks);
    return found;
}

enum { EPOCH = 1, START_CLOCK = 16, START_TIME = 18, END_CLOCK = 24, END_TIME = 26, COUNT = 29, DONE = 31 };
enum { HEADERS_AT_ONCE = 128, HEADERS_STEP = 1 << 12 }; /* a core's first cache holds those at once */

struct reading {
    const uint32_t *lines;
    const int64_t *at;
    int64_t count, fields;
    const int64_t *offsets, *sizes;
    void *const *columns;
    uint32_t epoch, done_word;
    uint64_t last_clock, last_time;
    uint8_t *finished;
    atomic_int_fast64_t suspects;
};

static uint64_t pair(const uint32_t *header, int word)
{
    uint64_t value;
    memcpy(&value, header + word, sizeof value);
    return value;
}

/* The end anchor was written, and makes sense. */
static int is_finished(const struct reading *reading, const uint32_t *header)
{
    const uint64_t clock = pair(header, END_CLOCK), time = pair(header, END_TIME);
    return header[DONE] == (reading->done_word ^ header[COUNT] ^ (uint32_t)clock) &&
           clock >= pair(header, START_CLOCK) && time >= pair(header, START_TIME) && clock < reading->last_clock &&
           time < reading->last_time;
}

static void read_headers(void *context, int64_t index)
{
    struct reading *const reading = context;
    const int64_t *const at = reading->at;
    const int64_t end = step_end(index, reading->count, HEADERS_STEP);
    int64_t suspects = 0;
    for (int64_t first = index * HEADERS_STEP; first < end; first += HEADERS_AT_ONCE) {
        const int64_t last = first + HEADERS_AT_ONCE < end ? first + HEADERS_AT_ONCE : end;
        for (int64_t i = first; i < last; i++) {
            const uint32_t *const header = reading->lines + at[i] * LINE_WORDS;
            reading->finished[i] = (uint8_t)is_finished(reading, header);
            suspects += header[EPOCH] != reading->epoch || pair(header, START_CLOCK) >= reading->last_clock ||
                        pair(header, START_TIME) >= reading->last_time;
        }
        for (int64_t field = 0; field < reading->fields; field++) {
            const uint8_t *const from = (const uint8_t *)reading->lines + reading->offsets[field];
            if (reading->sizes[field] == 4)
                for (int64_t i = first; i < last; i++)
                    memcpy((uint32_t *)reading->columns[field] + i, from + at[i] * (LINE_WORDS * 4), 4);
            else
                for (int64_t i = first; i < last; i++)
                    memcpy((uint64_t *)reading->columns[field] + i, from + at[i] * (LINE_WORDS * 4), 8);
        }
    }
    atomic_fetch_add(&reading->suspects, suspects);
}

/* Copy fields of headers at lines at[0..count) into columns. offsets, sizes (4 or 8): of each field, in bytes.
   finished: see decoding/slabs.py. Returns how many are of another epoch, or begin at an impossible time. */
int64_t ks_headers(const uint32_t *lines, const int64_t *at, int64_t count, int64_t threads, int64_t fields,
                   const int64_t *offsets, const int64_t *sizes, void *const *columns, int64_t epoch,
                   int64_t done_word, int64_t last_clock, int64_t last_time, uint8_t *finished)
{
    struct reading reading = {lines, at, count, fields, offsets, sizes, columns, (uint32_t)epoch, (uint32_t)done_word,
                              (uint64_t)last_clock, (uint64_t)last_time, finished, 0};
    in_parallel(read_headers, &reading, steps_of(count, HEADERS_STEP), worth(threads, count, HEADERS_STEP));
    return reading.suspects;
}

enum { PLACES_STEP = 1 << 15 };

struct places {
    const uint32_t *place;
    int64_t count, warp_shift, log2_shift, flag_shift, sm_shift;
    uint8_t *lane, *warp, *log2;
    uint16_t *sm;
    atomic_uint_fast32_t flags;
};

static void read_places(void *context, int64_t index)
{
    struct places *const places = context;
    uint32_t all = 0;
    for (int64_t i = index * PLACES_STEP; i < step_end(index, places->count, PLACES_STEP); i++) {
        const uint32_t place = places->place[i];
        places->lane[i] = place & 31;
        places->warp[i] = place >> places->warp_shift & 31;
        places->log2[i] = place >> places->log2_shift & 31;
        places->sm[i] = (uint16_t)(place >> places->sm_shift);
        all |= place;
    }
    atomic_fetch_or(&places->flags, all);
}

/* The parts of the words `place` of headers. Returns the flags that any of them has. */
int64_t ks_places(const uint32_t *place, int64_t count, int64_t threads, int64_t warp_shift, int64_t log2_shift,
                  int64_t flag_shift, int64_t sm_shift, uint8_t *lane, uint8_t *warp, uint8_t *log2, uint16_t *sm)
{
    struct places places = {place, count, warp_shift, log2_shift, flag_shift, sm_shift, lane, warp, log2, sm, 0};
    in_parallel(read_places, &places, steps_of(count, PLACES_STEP), worth(threads, count, PLACES_STEP));
    return (int64_t)(places.flags >> flag_shift & ((1u << (sm_shift - flag_shift)) - 1));
}
