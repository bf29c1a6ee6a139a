/* Batches that are kept in a pool's file, as PoolFile.keep() keeps them (kscope/capture/pools/pool_file.py). */

#include "batches.h"
#include "checked.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = LINE_WORDS * 4, BATCH_MAGIC = 0x4B53424B, PART_WORDS = 1 << 15 };
enum { THREADS_SHARE = 2 }; /* fewer threads than write slabs */

struct keeping {
    struct work work;
    struct checked_copy copy;
    int64_t batch, lines;
    uint8_t *head; /* NULL if the batch is larger than the ring */
    uint32_t checks[];
};

void begin_keeping(struct pass *pass, int64_t batch, const uint32_t *lines, int64_t count)
{
    const int64_t bytes = count * LINE_BYTES, words = bytes / 8, parts = steps_of(words, PART_WORDS);
    struct keeping *const keeping = malloc(sizeof *keeping + sizeof *keeping->checks * (size_t)parts);
    if (!keeping) {
        *pass->kept_batches += count > 0;
        release(pass, batch);
        return;
    }
    keeping->batch = batch;
    keeping->lines = count;
    keeping->head = NULL;
    if (count && LINE_BYTES + bytes <= pass->kept_bytes) {
        if (pass->put + LINE_BYTES + bytes > pass->kept_bytes) {
            memset(pass->kept + pass->put, 0, LINE_BYTES * (pass->put + LINE_BYTES <= pass->kept_bytes));
            pass->put = 0;
        }
        keeping->head = pass->kept + pass->put;
        memset(keeping->head, 0, LINE_BYTES); /* what follows is not a batch until it is complete */
        keeping->copy = (struct checked_copy){(const uint64_t *)(const void *)lines,
                                              (uint64_t *)(void *)(keeping->head + LINE_BYTES), words, PART_WORDS,
                                              keeping->checks};
    }
    const int64_t threads = pass->threads > 1 ? steps_of(pass->threads, THREADS_SHARE) : 0;
    begin_parallel(&keeping->work, copy_part, &keeping->copy, keeping->head ? parts : 0, threads, 0);
    pass->keeping = keeping;
}

void finish_keeping(struct pass *pass)
{
    struct keeping *const keeping = pass->keeping;
    if (!keeping)
        return;
    finish_parallel(&keeping->work);
    if (keeping->head) {
        const int64_t bytes = keeping->lines * LINE_BYTES, parts = steps_of(keeping->copy.words, PART_WORDS);
        const uint32_t head[] = {BATCH_MAGIC, (uint32_t)bytes, (uint32_t)*pass->kept_batches,
                                 crc32_of(keeping->checks, parts * (int64_t)sizeof *keeping->checks)};
        atomic_thread_fence(memory_order_release); /* a reader takes what has a head */
        memcpy(keeping->head, head, sizeof head);
        pass->put += LINE_BYTES + bytes;
    }
    *pass->kept_batches += keeping->lines > 0;
    release(pass, keeping->batch);
    free(keeping);
    pass->keeping = NULL;
}
