/* Anchors of SM clocks: their order, lines and bands through them, and what a line may be off.
   The formulas are those of decoding/anchors.py and decoding/time_bounds.py, which do the same in numpy. Functions
   with from and to work on these rows: anchors of one SM, in order of x. */

#include "threads.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDING 1e-9 /* more than a few operations lose */

typedef struct {
    double x, width, y;
    int64_t slab;
} Anchor;

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

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

/* after, before: per row the anchors between which a line of its rate has the least room. */
int64_t ks_tightest(int64_t from, int64_t to, const int64_t *first, const int64_t *last, const double *x,
                 const double *width, const double *y, const double *rate, int64_t *after, int64_t *before)
{
    for (int64_t row = from; row < to; row++) {
        double least = -INFINITY, most = -INFINITY;
        after[row] = before[row] = first[row];
        for (int64_t i = first[row]; i <= last[row]; i++) {
            const double low = y[i] - (x[i] + width[i]) * rate[row], high = x[i] * rate[row] - y[i];
            if (low >= least) {
                least = low;
                after[row] = i;
            }
            if (high >= most) {
                most = high;
                before[row] = i;
            }
        }
    }
    return 0;
}

/* The bounds of the rate between two anchors, ns per cycle. */
static void between(const double *x, const double *width, const double *y, int64_t one, int64_t next, double tick,
                    double *least, double *most)
{
    const double elapsed = y[next] - y[one];
    const double longest = x[next] + width[next] - x[one], shortest = x[next] - x[one] - width[one];
    *least = longest > 0 ? (elapsed - tick) / longest : 0;
    *most = shortest > 0 ? (elapsed + tick) / shortest : INFINITY;
}

/* Whether the rate between two anchors is certainly within those found so far: divisions take longer. */
static int changes_nothing(double longest, double shortest, double elapsed, double tick, double wide,
                           const double *found)
{
    const double least = (elapsed - tick) * shortest, most = (elapsed + tick) * longest; /* times both lengths */
    const double both = 2 * longest * shortest;
    if (!(longest > 0 && most > 0 && most > found[2] * (1 + ROUNDING) * both / 2))
        return 0;
    return least <= 0 || most * (1 - wide / 2) > least * (1 + wide / 2) * (1 + ROUNDING) ||
           (least + most > found[0] * (1 + ROUNDING) * both && least + most < found[1] * (1 - ROUNDING) * both);
}

/* Of the neighbors in rows whose bounds agree: the least and the most middle of bounds closer than `wide`, and the least
   upper bound; in found[0..3), which hold the extremes so far. */
int64_t ks_limits(int64_t from, int64_t to, const int64_t *first, const int64_t *last, const double *x,
               const double *width, const double *y, double tick, double wide, double *found)
{
    for (int64_t row = from; row < to; row++) {
        for (int64_t i = first[row]; i < last[row]; i++) {
            const double elapsed = y[i + 1] - y[i];
            const double longest = x[i + 1] + width[i + 1] - x[i], shortest = x[i + 1] - x[i] - width[i];
            double least, most;
            if (!(shortest > 0) || changes_nothing(longest, shortest, elapsed, tick, wide, found))
                continue; /* without an upper bound they are not close either */
            between(x, width, y, i, i + 1, tick, &least, &most);
            if (!(least <= most))
                continue;
            const double middle = (least + most) / 2;
            if (most - least < wide * middle) {
                found[0] = middle < found[0] ? middle : found[0];
                found[1] = middle > found[1] ? middle : found[1];
            }
            found[2] = most < found[2] ? most : found[2];
        }
    }
    return 0;
}

/* breaks[i]: no clock between `fast` and `slow` ns per cycle ran from anchor i - 1 of the row to anchor i. */
int64_t ks_breaks(int64_t from, int64_t to, const int64_t *first, const int64_t *last, const double *x,
               const double *width, const double *y, double tick, double fast, double slow, uint8_t *breaks)
{
    const double sure_slow = slow * (1 - ROUNDING), sure_fast = fast * (1 + ROUNDING);
    for (int64_t row = from; row < to; row++) {
        breaks[first[row]] = 1;
        for (int64_t i = first[row]; i < last[row]; i++) {
            const double elapsed = y[i + 1] - y[i];
            const double longest = x[i + 1] + width[i + 1] - x[i], shortest = x[i + 1] - x[i] - width[i];
            double least, most;
            breaks[i + 1] = 0;
            if (elapsed - tick < sure_slow * longest && elapsed + tick > sure_fast * shortest)
                continue; /* certainly within: divisions take longer */
            between(x, width, y, i, i + 1, tick, &least, &most);
            breaks[i + 1] = least > slow || most < fast;
        }
    }
    return 0;
}

/* low, high: (count,) the least and the most ns of each anchor's first cycle, by all anchors of its row. */
static void fill_band(int64_t count, const double *x, const double *width, const double *y, double tick, double fast,
                      double slow, double *low, double *high)
{
    double above = -INFINITY, below = INFINITY;
    for (int64_t i = 0; i < count; i++) {
        const double at = x[i] - x[0], from_here = y[i] - y[0] - width[i] * slow, to_here = y[i] - y[0] + tick;
        above = larger(above, from_here - fast * at);
        below = smaller(below, to_here - slow * at);
        low[i] = above + fast * at;
        high[i] = below + slow * at;
    }
    above = -INFINITY, below = INFINITY;
    for (int64_t i = count - 1; i >= 0; i--) {
        const double at = x[i] - x[0], from_here = y[i] - y[0] - width[i] * slow, to_here = y[i] - y[0] + tick;
        above = larger(above, from_here - slow * at);
        below = smaller(below, to_here - fast * at);
        low[i] = larger(low[i], above + slow * at);
        high[i] = smaller(high[i], below + fast * at);
        if (!(low[i] <= high[i])) { /* an anchor is damaged, or the rates are wrong: each is used alone */
            low[i] = from_here;
            high[i] = to_here;
        }
        low[i] += y[0];
        high[i] += y[0];
    }
}

/* The band of each row. */
int64_t ks_band(int64_t from, int64_t to, const int64_t *first, const int64_t *last, const double *x, const double *width,
             const double *y, double tick, const double *least, const double *most, double *low, double *high)
{
    for (int64_t row = from; row < to; row++) {
        const int64_t a = first[row];
        fill_band(last[row] - a + 1, x + a, width + a, y + a, tick, least[row], most[row], low + a, high + a);
    }
    return 0;
}

static double clipped(double value, double most)
{
    return value < 0 ? 0 : value > most ? most : value;
}

static int level_of(int64_t length)
{
    return 63 - __builtin_clzll((unsigned long long)length);
}

/* The last anchor that bounds the slab of anchor i of a row that ends at z: its last one; of an unfinished slab the
   first one at its end or later, else z. */
static int64_t last_of(int64_t i, int64_t z, const double *x, double cycles, int64_t own)
{
    if (!(cycles > 0) || x[own] >= x[i] + cycles || own > z)
        return own < z ? own : z;
    int64_t before = own - 1, end = z;
    while (end - before > 1) {
        const int64_t half = (before + end) / 2;
        if (x[half] >= x[i] + cycles)
            end = half;
        else
            before = half;
    }
    return end;
}

/* The first and the last anchor of each slab; all of a slab are in one row. */
int64_t ks_reach(int64_t from, int64_t to, const int64_t *first, const int64_t *last, const int64_t *slab,
                 int64_t *slab_first, int64_t *slab_last)
{
    for (int64_t row = from; row < to; row++) {
        for (int64_t i = last[row]; i >= first[row]; i--)
            slab_first[slab[i]] = i;
        for (int64_t i = first[row]; i <= last[row]; i++)
            slab_last[slab[i]] = i;
    }
    return 0;
}

enum { LEVELS = 64 };

/* Of one row of anchors: its band, how far that lies above and below its chord, and where its slabs end. */
typedef struct {
    double *low, *high, *above, *below;
    int64_t *end;      /* of the slab that begins here, -1 where none does */
    int64_t *of_level; /* anchors where slabs begin, by the level of the distance to their ends */
    int64_t level[LEVELS + 1]; /* where each level begins there */
    double middle, origin, pace;
} Row;

static double chord(const Row *row, double x)
{
    return row->middle + (x - row->origin) * row->pace;
}

/* above, below: from the corners between an anchor and the next one. A clock runs at `fast` at least on average between
   them, at `briefly` for a moment; of both parallelograms the smaller one holds. */
static void fill_corners(const Row *row_at, int64_t count, const double *restrict x, double briefly, double fast,
                         double highest, double slow)
{
    const Row row = *row_at; /* a copy, which no store changes */
    const double *const restrict low = row.low, *const restrict high = row.high;
    double *const restrict above = row.above, *const restrict below = row.below;
    const double least[2] = {briefly, fast}, room[2] = {slow - briefly, slow - fast};
    for (int64_t i = 0; i < count; i++) {
        above[i] = high[i] - chord(&row, x[i]);
        below[i] = chord(&row, x[i]) - low[i];
    }
    for (int64_t i = 0; i + 1 < count; i++) {
        const double cycles = x[i + 1] - x[i];
        const double gains[2] = {0.0, larger(highest * cycles - low[i + 1] + high[i], 0.0)};
        double up = INFINITY, down = INFINITY;
        for (int one = 0; one < 2; one++) {
            const double f = least[one], more = gains[one];
            const double rising = clipped((high[i + 1] + more - high[i] - f * cycles) / room[one], cycles);
            const double falling = clipped((slow * cycles - low[i + 1] + low[i] - more) / room[one], cycles);
            up = smaller(up, above[i] + rising * (slow - row.pace));
            down = smaller(down, more + below[i] - falling * (f - row.pace));
        }
        above[i] = larger(larger(above[i], above[i + 1]), up);
        below[i] = larger(larger(below[i], below[i + 1]), down);
    }
}

/* Sort the anchors where slabs begin by the level of the distance to their ends. */
static void fill_levels(Row *row, int64_t count)
{
    memset(row->level, 0, sizeof(row->level));
    for (int64_t i = 0; i < count; i++)
        if (row->end[i] >= 0)
            row->level[level_of(row->end[i] - i) + 1]++;
    for (int level = 0; level < LEVELS; level++)
        row->level[level + 1] += row->level[level];
    for (int64_t i = 0; i < count; i++)
        if (row->end[i] >= 0)
            row->of_level[row->level[level_of(row->end[i] - i)]++] = i;
    memmove(row->level + 1, row->level, sizeof(int64_t) * LEVELS);
    row->level[0] = 0;
}

/* The most that each slab's line may be off: at its ends, and anywhere inside, by the bands of rows. Returns -1 without
   memory. */
int64_t ks_errors(int64_t from, int64_t to, const int64_t *first, const int64_t *last, const double *x,
                  const double *width, const double *y, double tick, const int64_t *slab, double briefly, double fast,
                  double highest, double slow, const double *start, const double *rate, const double *ends, const int64_t *slab_first,
                  const int64_t *slab_last, double *at_ends, double *inside)
{
    int64_t most = 1;
    for (int64_t one = from; one < to; one++)
        most = last[one] - first[one] + 1 > most ? last[one] - first[one] + 1 : most;
    double *const space = malloc((4 * sizeof(double) + 2 * sizeof(int64_t)) * (size_t)most);
    if (!space)
        return -1;
    int64_t *const places = (int64_t *)(space + 4 * most);
    Row row = {space, space + most, space + 2 * most, space + 3 * most, places, places + most, {0}, 0, 0, 0};
    const double *const low = row.low, *const high = row.high;
    for (int64_t one = from; one < to; one++) {
        const int64_t a = first[one], z = last[one], count = z - a + 1;
        int64_t longest = 0;
        fill_band(count, x + a, width + a, y + a, tick, briefly, slow, row.low, row.high);
        row.middle = (low[0] + high[0]) / 2;
        row.origin = x[a];
        row.pace = ((low[count - 1] + high[count - 1]) / 2 - row.middle) / larger(x[z] - x[a], 1.0);
        fill_corners(&row, count, x + a, briefly, fast, highest, slow);
        for (int64_t i = a; i <= z; i++) {
            const int64_t s = slab[i];
            row.end[i - a] = -1;
            if (slab_first[s] != i)
                continue;
            const int64_t end = last_of(i, z, x, ends[s], slab_last[s]);
            const double stop = x[i] + ends[s], at_end = start[s] + ends[s] * rate[s];
            const double beyond = larger(stop - x[end], 0.0);
            double error = larger(high[end - a] + beyond * slow - at_end, at_end - low[end - a] - beyond * briefly);
            if (x[end] > stop)
                error = 0.0; /* no anchor there: the next one bounds it, below */
            at_ends[s] = inside[s] = larger(error, larger(high[i - a] - start[s], start[s] - low[i - a]));
            if (end > i) {
                row.end[i - a] = end - a;
                longest = end - i > longest ? end - i : longest;
            }
        }
        fill_levels(&row, count);
        for (int level = 0; longest && level <= level_of(longest); level++) {
            const int64_t half = (int64_t)1 << level; /* above[i] is now the largest of 2^level from i on */
            for (int64_t at = row.level[level]; at < row.level[level + 1]; at++) {
                const int64_t i = row.of_level[at], end = row.end[i];
                const int64_t s = slab[a + i], other = end - half;
                const double ahead = start[s] - chord(&row, x[a + i]);
                const double behind = start[s] + (x[a + end] - x[a + i]) * rate[s] - chord(&row, x[a + end]);
                const double above = larger(row.above[i], row.above[other]) - smaller(ahead, behind);
                const double below = larger(row.below[i], row.below[other]) + larger(ahead, behind);
                inside[s] = larger(larger(above, below), at_ends[s]);
            }
            for (int64_t i = 0; i + half < count; i++) {
                row.above[i] = larger(row.above[i], row.above[i + half]);
                row.below[i] = larger(row.below[i], row.below[i + half]);
            }
        }
    }
    free(space);
    return 0;
}
