/* The slabs of one batch. kscope_runtime/drain_pass.py does the same step by step, and takes batches in which something
   is unusual. */

#define _POSIX_C_SOURCE 200809L /* for clock_gettime */

#include "batches.h"
#include "steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINES_PER_UNIT = 2 }; /* at most, where a row becomes three records */
enum { LAUNCHES_STEP = 1 << 9 };

struct writing {
    struct work work;
    struct expansion slabs;
    int64_t batch;
};

/* As time.monotonic(). */
double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void finish_writing(struct pass *pass)
{
    struct writing *const writing = pass->writing;
    if (!writing)
        return;
    const struct expansion *const slabs = &writing->slabs;
    finish_parallel(&writing->work);
    if (pass->kept) {
        finish_keeping(pass);
        begin_keeping(pass, writing->batch, slabs->lines, slabs->line[steps_of(slabs->slabs, slabs->step)]);
    }
    free(writing);
    pass->writing = NULL;
}

/* The layouts of a kernel, whose ids are sorted. */
static void find_layouts(const struct pass *pass, uint64_t kernel, int32_t *first, int32_t *stop)
{
    int64_t low = 0, high = pass->kernels;
    while (low < high) {
        const int64_t half = (low + high) / 2;
        if (pass->kernel[half] < kernel)
            low = half + 1;
        else
            high = half;
    }
    const int known = low < pass->kernels && pass->kernel[low] == kernel;
    *first = known ? pass->layout_first[low] : 0;
    *stop = known ? pass->layout_stop[low] : 0;
}

struct copying {
    const struct pass *pass;
    const struct columns *now;
    int64_t count;
    atomic_int learning;
};

static void copy_some(void *context, int64_t index)
{
    struct copying *const all = context;
    const struct pass *const pass = all->pass;
    for (int64_t i = index * LAUNCHES_STEP; i < step_end(index, all->count, LAUNCHES_STEP); i++) {
        const int32_t slot = all->now->rows[i];
        const uint32_t *const row = pass->rows + (int64_t)slot * LAUNCH_WORDS;
        const uint64_t kernel = two(row + KERNEL);
        memcpy(all->now->launches + i * LAUNCH_WORDS, row, LAUNCH_WORDS * sizeof *row);
        find_layouts(pass, kernel, all->now->layout_first + i, all->now->layout_stop + i);
        if (pass->log2[slot] == VARYING && pass->looks[kernel % (uint64_t)pass->sizes] < pass->enough_looks)
            all->learning = 1;
    }
}

/* Copy the entries of the batch's launches: later ones may replace them while slabs are written. Returns whether the
   sizes of some kernels' slabs still follow what is seen. */
static int copy_launches(const struct pass *pass, const struct columns *now, int64_t count)
{
    struct copying all = {pass, now, count, 0};
    in_parallel(copy_some, &all, steps_of(count, LAUNCHES_STEP), worth(pass->threads, count, LAUNCHES_STEP));
    return all.learning;
}

/* Find the slabs and their launches. Changes nothing but columns. The driver is called meanwhile. */
static int64_t search(struct pass *pass, const uint32_t *units, int64_t parts, int64_t *slabs)
{
    const struct columns *const now = pass->columns + pass->batch % SETS;
    int64_t overrun = 0, counts[2];
    struct claims claims = {.units = units, .least_log2 = pass->least_log2, .most_log2 = pass->most_log2,
                            .settled = pass->settled, .at = now->at, .log2 = now->log2, .closed = now->closed,
                            .over = now->over, .parts = parts, .first = now->first};
    if (begin_claims(&claims, pass->threads))
        return -1;
    go_on(pass);
    *slabs = finish_claims(&claims, now->opens, &overrun);
    if (overrun)
        return UNUSUAL;
    const double stale = pass->last ? -INFINITY : seconds() - pass->stale;
    if (ks_entries(units, *slabs, now->at, now->closed, pass->epoch, 0, pass->grid, pass->log2, pass->read_at, stale,
                   pass->last, pass->threads, now->entry, pass->missing, now->rows, counts))
        return -1;
    if (counts[0] < 0)
        return MISSING;
    return counts[1] || copy_launches(pass, now, counts[0]) ? UNUSUAL : DONE;
}

int64_t take_batch(struct pass *pass)
{
    const struct columns *const now = pass->columns + pass->batch % SETS;
    const uint32_t *const units = pass->place[pass->batch % PLACES];
    const int64_t from = pass->bounds[pass->batch], parts = pass->bounds[pass->batch + 1] - from;
    int64_t slabs;
    now->first[0] = 0;
    for (int64_t p = 0; p < parts; p++)
        now->first[p + 1] = now->first[p] + pass->units[from + p];
    if (pass->room - pass->used < LINES_PER_UNIT * now->first[parts])
        return FULL;
    const int64_t status = search(pass, units, parts, &slabs);
    if (status)
        return status;
    struct writing *const writing = malloc(sizeof *writing);
    if (!writing)
        return -1;
    const int64_t taken =
        ks_take(units, pass->least_log2, pass->most_log2, 1, pass->threads, parts, pass->stripe + from, now->first,
                pass->tail + from, pass->whole + from, pass->skipped + from, pass->head + from, now->opens, now->at,
                now->log2, now->closed, now->entry, pass->ring, pass->found, pass->proven, pass->clean, pass->limit,
                now->free, now->taken, now->taken_at, now->taken_entry);
    const uint32_t *const at = taken < slabs ? now->taken_at : now->at;
    const int32_t *const entry = taken < slabs ? now->taken_entry : now->entry;
    const int64_t step = taken ? steps_of(taken, STEPS) : 1, steps = steps_of(taken, step);
    const int64_t unnumbered =
        ks_plan(units, taken, step, at, entry, now->launches, pass->rate, pass->first_turn, pass->threads, pass->layouts,
                now->layout_first, now->layout_stop, pass->clock, pass->time, now->kept, now->line, now->start_clock);
    if (unnumbered < 0) {
        free(writing);
        return -1;
    }
    pass->unnumbered += unnumbered;
    for (int64_t p = 0; p < parts; p++) {
        now->stripe[p] = (uint32_t)pass->stripe[from + p];
        now->origin[p] = pass->tail[from + p] - (uint32_t)now->first[p];
    }
    writing->slabs = (struct expansion){
        units, taken, step, at, entry, now->kept, now->line, now->start_clock, parts, now->taken, now->stripe, now->origin,
        now->launches, {pass->layouts, now->layout_first, now->layout_stop}, (uint32_t)pass->header_word,
        (uint32_t)pass->done_word, (uint32_t)pass->epoch, pass->lines + pass->used * LINE_WORDS};
    writing->batch = pass->batch;
    finish_writing(pass);
    pass->writing = writing;
    const int64_t threads = worth(pass->threads, now->line[steps], LEAST_LINES);
    begin_parallel(&writing->work, write_step, &writing->slabs, steps, threads > 1 ? threads : 0, 0);
    pass->used += now->line[steps];
    pass->last = 0;
    return DONE;
}
