#ifndef KSCOPE_CHECKED_H
#define KSCOPE_CHECKED_H

#include "threads.h"

/* A copy of words of 64 bits. checks: the CRC-32 of each `part` of them. */
struct checked_copy {
    const uint64_t *from;
    uint64_t *to;
    int64_t words, part;
    uint32_t *checks;
};

/* Copy one part. context: a struct checked_copy. */
void copy_part(void *context, int64_t index);

/* zlib's CRC-32, on a little-endian machine. */
uint32_t crc32_of(const void *bytes, int64_t count);

#endif
