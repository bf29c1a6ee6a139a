/* Anchors of SM clocks, in the order of their clocks. As decoding/anchors.py does it in numpy. */

#include "threads.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    double x, width, y;
    int64_t slab;
} Anchor;

/* Insertion sort: anchors of slabs are mostly in order but for warps that ran at once. Gives up, with all anchors in
   some order, after more moves than a merge sort needs. */
static int inserted(Anchor *all, int64_t count)
{
    int64_t moves = 64 * count;
    for (int64_t i = 1; i < count; i++) {
        const Anchor one = all[i];
        int64_t at = i;
        for (; at > 0 && all[at - 1].x > one.x; at--)
            all[at] = all[at - 1];
        all[at] = one;
        if ((moves -= i - at) < 0)
            return 0;
    }
    return 1;
}

static void merge(const Anchor *left, const Anchor *middle, const Anchor *high, Anchor *out)
{
    const Anchor *right = middle;
    while (left < middle && right < high)
        *out++ = right->x < left->x ? *right++ : *left++;
    while (left < middle)
        *out++ = *left++;
    while (right < high)
        *out++ = *right++;
}

/* Stable. other: room for as many. */
static void sort(Anchor *all, Anchor *other, int64_t count)
{
    if (inserted(all, count))
        return;
    Anchor *from = all, *to = other;
    for (int64_t run = 1; run < count; run *= 2) {
        for (int64_t low = 0; low < count; low += 2 * run) {
            const int64_t middle = low + run < count ? low + run : count;
            const int64_t high = low + 2 * run < count ? low + 2 * run : count;
            merge(from + low, from + middle, from + high, to + low);
        }
        Anchor *swap = from;
        from = to;
        to = swap;
    }
    if (from != all)
        memcpy(all, from, sizeof(Anchor) * (size_t)count);
}

struct sms {
    const int64_t *slabs, *begin, *out, *reference;
    int64_t origin;
    const uint64_t *start_clock, *start_time;
    const uint32_t *start_width;
    const uint64_t *end_clock, *end_time;
    const uint32_t *end_width;
    const uint8_t *finished;
    double *x, *width, *y;
    int64_t *slab;
    atomic_int failed;
};

static void fill_anchors(void *context, int64_t sm)
{
    struct sms *const sms = context;
    const int64_t most = sms->begin[sm + 1] - sms->begin[sm], reference = sms->reference[sm];
    Anchor *const space = malloc(sizeof(Anchor) * 3 * (size_t)(most + 1));
    if (!space) {
        atomic_store(&sms->failed, 1);
        return;
    }
    Anchor *const starts = space, *const ends = starts + most, *const other = ends + most;
    int64_t started = 0, ended = 0;
    for (int64_t i = sms->begin[sm]; i < sms->begin[sm + 1]; i++) {
        const int64_t s = sms->slabs[i];
        starts[started++] = (Anchor){(double)((int64_t)sms->start_clock[s] - reference), sms->start_width[s] + 1.0,
                                     (double)((int64_t)sms->start_time[s] - sms->origin), s};
        if (sms->finished[s])
            ends[ended++] = (Anchor){(double)((int64_t)sms->end_clock[s] - reference), sms->end_width[s] + 1.0,
                                     (double)((int64_t)sms->end_time[s] - sms->origin), s};
    }
    sort(starts, other, started);
    sort(ends, other, ended);
    const Anchor *start = starts, *end = ends;
    for (int64_t to = sms->out[sm]; start < starts + started || end < ends + ended; to++) {
        const int is_start = start < starts + started && !(end < ends + ended && end->x < start->x);
        const Anchor *const next = is_start ? start++ : end++;
        sms->x[to] = next->x;
        sms->width[to] = next->width;
        sms->y[to] = next->y;
        sms->slab[to] = next->slab;
    }
    free(space);
}

/* The anchors of the slabs, SM after SM, in order of x.
   slabs: indices of slabs by SM; those of SM m are begin[m]..begin[m + 1]. out: index of the first anchor of each SM.
   Returns -1 without memory. */
int64_t ks_anchors(int64_t count, const int64_t *slabs, const int64_t *begin, const int64_t *out,
                   const int64_t *reference, int64_t origin, int64_t threads, const uint64_t *start_clock,
                   const uint64_t *start_time, const uint32_t *start_width, const uint64_t *end_clock,
                   const uint64_t *end_time, const uint32_t *end_width, const uint8_t *finished, double *x,
                   double *width, double *y, int64_t *slab)
{
    struct sms sms = {slabs,     begin,    out,       reference, origin, start_clock, start_time, start_width,
                      end_clock, end_time, end_width, finished,  x,      width,       y,          slab,       0};
    in_parallel(fill_anchors, &sms, count, worth(threads, begin[count], 1 << 12));
    return sms.failed ? -1 : 0;
}
