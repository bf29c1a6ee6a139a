/* What the line of each slab may be off, by the band through all anchors of its SM. As decoding/time_bounds.py does it in
   numpy. Functions with from and to work on these rows: anchors of one SM, in order of x. */

#include "bounds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
