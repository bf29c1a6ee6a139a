#ifndef KSCOPE_BATCHES_H
#define KSCOPE_BATCHES_H

#include "expand.h"

/* A pass of the drain. Every field has 8 bytes; kscope_runtime/compiled_pass.py has the same. */

enum { PLACES = 3, SETS = 3, STEPS = 128 };
enum { DONE, UNUSUAL, MISSING, NEWS, FULL, FAILED }; /* why ks_batches() returns */

/* Memory for what is known of a batch's slabs, parts and launches. */
struct columns {
    uint32_t *at;
    uint8_t *log2, *closed, *over;
    int32_t *entry;
    uint32_t *taken_at;
    int32_t *taken_entry;
    uint32_t *kept;
    uint64_t *start_clock;
    int64_t *first, *opens, *free, *taken;
    uint32_t *stripe, *origin;
    int32_t *rows;
    uint32_t *launches;
    int32_t *layout_first, *layout_stop;
    int64_t *line;
};

struct pass {
    /* functions of the driver, and streams to the host and to the device */
    uint64_t read, write, write_column, synchronize, stream, writes;
    /* the device: rings, addresses of its words, and zeros to clear memory with */
    int64_t stripes;
    const uint32_t *table;
    uint64_t words_at, limits_at, launches_at, zeros;
    int64_t zeros_bytes;
    /* pinned memory: two readings of the stripes, limits, entries of launches, copies */
    uint32_t *before, *control, *limits, *ahead, *place[PLACES];
    int64_t window;
    /* parts of stripes, and where the batches of them begin; units of all of a part */
    int64_t batches;
    const int64_t *bounds, *stripe, *units;
    const uint32_t *tail, *skipped, *head;
    const uint8_t *whole;
    /* the stripes, see accounting.py and drain_pass.py */
    uint32_t *ring, *tails, *found, *proven, *clean, *limit, *then;
    uint8_t *turned, *stuck;
    double *again, *delay;
    /* launches, see launch_table.py; next: -1 if none is known. looks: of the words of sizes, see slab_sizes.py */
    int64_t epoch, next;
    uint32_t *rows;
    uint8_t *grid, *log2, *missing;
    double *read_at;
    const int64_t *looks;
    int64_t sizes, enough_looks;
    double stale;
    /* how slabs expand, see expand.py and clock_rows.py */
    double rate;
    int64_t first_turn;
    uint64_t *clock, *time;
    int64_t kernels;
    const uint64_t *kernel;
    const uint32_t *layouts;
    const int32_t *layout_first, *layout_stop;
    int64_t header_word, done_word, least_log2, most_log2, settled, threads;
    /* where they are written, and how many lines there are */
    uint32_t *lines;
    int64_t room;
    /* the ring of a file that keeps what was drained, NULL without one; where the next batch goes, and its number */
    uint8_t *kept;
    int64_t kept_bytes, put;
    uint64_t *kept_batches;
    /* progress: the next batch, copies that were requested, whether the batch's has arrived, whether entries that are
       missing will stay so, and the batch that is to be cleared, or -1 */
    int64_t batch, fetched, ready, last, pending;
    /* results: lines, units that were freed, slabs as ks_plan() counts them, whether the pool has room, the last reading
       and the call that failed */
    int64_t used, freed, unnumbered, has_room;
    double reading;
    uint64_t failed;
    int64_t result;
    struct writing *writing;
    struct keeping *keeping;
    struct columns columns[SETS];
};

/* Find, account for and plan the slabs of the batch, whose copy has arrived, and begin to write them. Returns why not,
   or DONE; -1 without memory. */
int64_t take_batch(struct pass *pass);

/* Wait until the batch before is written. With a file, free the one before it, which is kept, and begin to keep this. */
void finish_writing(struct pass *pass);

/* Begin to keep a batch's lines in the file. It is freed when it is kept. */
void begin_keeping(struct pass *pass, int64_t batch, const uint32_t *lines, int64_t count);
void finish_keeping(struct pass *pass);

/* Request the next copy, and clear the batch before. */
void go_on(struct pass *pass);

/* Free a batch, clear it, and let its memory be claimed again. All tails move before the first call that may fail. */
void release(struct pass *pass, int64_t batch);

double seconds(void);

#endif
