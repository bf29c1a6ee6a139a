/* Copies with checksums; kscope/capture/pools/batch_check.py explains them. */

#include "threads.h"

#include <string.h>

enum { BYTE_VALUES = 256, AT_ONCE = 8 };
static const uint32_t POLYNOMIAL = 0xEDB88320; /* zlib's, reflected */

/* tables[n][byte]: the checksum of a byte with n zeros behind it. */
static void fill(uint32_t tables[AT_ONCE][BYTE_VALUES])
{
    for (uint32_t byte = 0; byte < BYTE_VALUES; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? POLYNOMIAL : 0);
        tables[0][byte] = value;
    }
    for (int zeros = 1; zeros < AT_ONCE; zeros++)
        for (int byte = 0; byte < BYTE_VALUES; byte++) {
            const uint32_t before = tables[zeros - 1][byte];
            tables[zeros][byte] = before >> 8 ^ tables[0][before & 255];
        }
}

/* zlib's CRC-32 of words of 64 bits, on a little-endian machine. */
static uint32_t crc32_of(const uint64_t *words, int64_t count, uint32_t tables[AT_ONCE][BYTE_VALUES])
{
    uint32_t value = ~(uint32_t)0;
    for (int64_t i = 0; i < count; i++) {
        const uint64_t next = words[i] ^ value;
        value = 0;
        for (int byte = 0; byte < AT_ONCE; byte++)
            value ^= tables[AT_ONCE - 1 - byte][next >> 8 * byte & 255];
    }
    return ~value;
}

struct copying {
    const uint64_t *from;
    uint64_t *to;
    int64_t words, part;
    uint32_t *checks;
    uint32_t tables[AT_ONCE][BYTE_VALUES];
};

static void copy_part(void *context, int64_t index)
{
    struct copying *const all = context;
    const int64_t first = index * all->part, count = step_end(index, all->words, all->part) - first;
    memcpy(all->to + first, all->from + first, (size_t)count * sizeof *all->to);
    all->checks[index] = crc32_of(all->from + first, count, all->tables);
}

/* Copy words of 64 bits. checks: the CRC-32 of each `part` of them. */
int64_t ks_copy_checked(const uint64_t *from, uint64_t *to, int64_t words, int64_t part, uint32_t *checks,
                        int64_t threads)
{
    struct copying all = {from, to, words, part, checks, {{0}}};
    fill(all.tables);
    in_parallel(copy_part, &all, steps_of(words, part), threads);
    return 0;
}
