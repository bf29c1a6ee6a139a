#ifndef KSCOPE_EXPAND_H
#define KSCOPE_EXPAND_H

#include "clock_rows.h"
#include "threads.h"

enum { LINE_WORDS = 16 };
enum { LEAST_LINES = 1 << 12 }; /* for a thread */

/* Slabs that are written; see ks_expand(). */
struct expansion {
    const uint32_t *units;
    int64_t slabs, step;
    const uint32_t *at;
    const int32_t *entry;
    const uint32_t *kept;
    const int64_t *line;
    const uint64_t *start_clock;
    int64_t claims;
    const int64_t *opens;
    const uint32_t *stripe, *origin, *launches;
    struct layouts layouts;
    uint32_t header_word, done_word, epoch;
    uint32_t *lines;
};

/* Write the slabs of one step. context: a struct expansion. */
void write_step(void *context, int64_t index);

#endif
