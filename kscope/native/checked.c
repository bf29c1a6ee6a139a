/* Copies with checksums; kscope/capture/pools/batch_check.py explains them. */

#include "checked.h"

#include <string.h>

enum { BYTE_VALUES = 256, AT_ONCE = 8, FOLDED = 64 };
static const uint32_t POLYNOMIAL = 0xEDB88320; /* zlib's, reflected */

/* tables[n][byte]: the checksum of a byte with n zeros behind it. */
static uint32_t tables[AT_ONCE][BYTE_VALUES];

static void fill_tables(void)
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

static uint32_t by_tables(const uint8_t *bytes, int64_t count, uint32_t value)
{
    for (; count >= AT_ONCE; count -= AT_ONCE, bytes += AT_ONCE) {
        uint64_t next;
        memcpy(&next, bytes, sizeof next);
        next ^= value;
        value = 0;
        for (int byte = 0; byte < AT_ONCE; byte++)
            value ^= tables[AT_ONCE - 1 - byte][next >> 8 * byte & 255];
    }
    for (; count > 0; count--, bytes++)
        value = value >> 8 ^ tables[0][(value ^ *bytes) & 255];
    return value;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define CARRYLESS __attribute__((target("pclmul,sse4.1")))

/* A block of 128 bits moved ahead by as many as the factors say, and the block there. */
CARRYLESS static inline __m128i folded(__m128i block, __m128i factors, __m128i next)
{
    const __m128i low = _mm_clmulepi64_si128(block, factors, 0x00), high = _mm_clmulepi64_si128(block, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Four blocks at a time by multiplications without carries (V. Gopal et al., Fast CRC computation for generic
   polynomials using PCLMULQDQ, Intel 2009). count: a multiple of FOLDED, not 0. */
CARRYLESS static uint32_t by_folding(const uint8_t *bytes, int64_t count, uint32_t value)
{
    const __m128i by_64 = _mm_set_epi64x(0x01C6E41596, 0x0154442BD4), by_16 = _mm_set_epi64x(0x00CCAA009E, 0x01751997D0);
    const __m128i by_8 = _mm_set_epi64x(0, 0x0163CD6124), barrett = _mm_set_epi64x(0x01F7011641, 0x01DB710641);
    const __m128i words = _mm_setr_epi32(-1, 0, -1, 0);
    __m128i blocks[4];
    memcpy(blocks, bytes, sizeof blocks);
    blocks[0] = _mm_xor_si128(blocks[0], _mm_cvtsi32_si128((int)value));
    for (bytes += FOLDED, count -= FOLDED; count; bytes += FOLDED, count -= FOLDED)
        for (int i = 0; i < 4; i++)
            blocks[i] = folded(blocks[i], by_64, _mm_loadu_si128((const __m128i *)bytes + i));
    __m128i all = blocks[0];
    for (int i = 1; i < 4; i++)
        all = folded(all, by_16, blocks[i]);
    all = _mm_xor_si128(_mm_srli_si128(all, 8), _mm_clmulepi64_si128(all, by_16, 0x10));
    all = _mm_xor_si128(_mm_srli_si128(all, 4), _mm_clmulepi64_si128(_mm_and_si128(all, words), by_8, 0x00));
    __m128i rest = _mm_clmulepi64_si128(_mm_and_si128(all, words), barrett, 0x10);
    rest = _mm_clmulepi64_si128(_mm_and_si128(rest, words), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(all, rest), 1);
}

static int can_fold(void)
{
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}
#else
static uint32_t by_folding(const uint8_t *bytes, int64_t count, uint32_t value)
{
    return by_tables(bytes, count, value);
}

static int can_fold(void)
{
    return 0;
}
#endif

static uint32_t crc32_by(const uint8_t *bytes, int64_t count, int folds)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const int64_t first = folds ? count / FOLDED * FOLDED : 0;
    uint32_t value = ~(uint32_t)0;
    if (first)
        value = by_folding(bytes, first, value);
    if (first < count) {
        pthread_once(&once, fill_tables);
        value = by_tables(bytes + first, count - first, value);
    }
    return ~value;
}

uint32_t crc32_of(const void *bytes, int64_t count)
{
    return crc32_by(bytes, count, can_fold());
}

/* zlib's CRC-32, with accelerated = 0 by tables alone. */
int64_t ks_crc32(const uint8_t *bytes, int64_t count, int64_t tables_alone)
{
    return crc32_by(bytes, count, !tables_alone && can_fold());
}

void copy_part(void *context, int64_t index)
{
    const struct checked_copy *const all = context;
    const int64_t first = index * all->part, count = step_end(index, all->words, all->part) - first;
    memcpy(all->to + first, all->from + first, (size_t)count * sizeof *all->to);
    all->checks[index] = crc32_of(all->from + first, count * (int64_t)sizeof *all->from);
}

/* Copy words of 64 bits. checks: the CRC-32 of each `part` of them. */
int64_t ks_copy_checked(const uint64_t *from, uint64_t *to, int64_t words, int64_t part, uint32_t *checks,
                        int64_t threads)
{
    struct checked_copy all = {from, to, words, part, checks};
    in_parallel(copy_part, &all, steps_of(words, part), threads);
    return 0;
}
