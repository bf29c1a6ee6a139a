/* Drained slabs in a pool file, which are those of a capture. kscope/capture/pools/search_in_numpy.py and
   kscope/watching/warps_in_numpy.py do the same in numpy. */

#include "native.h"

#include <string.h>

enum { LINE_WORDS = 16, MAGIC_WORD = 0, GRID = 4, CTAID_X = 6, CTAID_YZ, NCTAID_X, NCTAID_YZ };
enum { CHECK = 15, LAST_CHECKED = 20 };

/* The first line from `from` on that begins with a word; `count` if there is none. */
int64_t ks_seek(const uint32_t *lines, int64_t count, int64_t from, int64_t word)
{
    while (from < count && lines[from * LINE_WORDS] != (uint32_t)word)
        from++;
    return from;
}

static int is_header(const uint32_t *line, uint32_t magic)
{
    uint32_t sum = 0;
    if (line[MAGIC_WORD] != magic)
        return 0;
    for (int word = 0; word <= LAST_CHECKED; word++)
        sum ^= word == CHECK ? 0 : line[word];
    return sum == line[CHECK];
}

/* Blocks, by their linear number, of the headers of one launch. blocks: room for one per line. Returns their number. */
int64_t ks_drained(const uint32_t *lines, int64_t count, int64_t header_word, const uint64_t *grid, int64_t *blocks)
{
    int64_t found = 0;
    for (int64_t i = 0; i + 1 < count; i++) {
        const uint32_t *const line = lines + i * LINE_WORDS;
        uint64_t of;
        if (!is_header(line, (uint32_t)header_word) || (memcpy(&of, line + GRID, sizeof of), of != *grid))
            continue;
        const uint64_t y = line[CTAID_YZ] & 0xFFFF, z = line[CTAID_YZ] >> 16, ny = line[NCTAID_YZ] & 0xFFFF;
        blocks[found++] = (int64_t)(line[CTAID_X] + line[NCTAID_X] * (y + ny * z)); /* damaged numbers may wrap */
    }
    return found;
}
