/* Lines and bands through the anchors of an SM: between which anchors a line has the least room, the rates of clocks, and
   where their times are. The formulas are those of decoding/anchors.py and decoding/time_bounds.py, which do the same in
   numpy. Functions with from and to work on these rows: anchors of one SM, in order of x. */

#include "bounds.h"

#include <math.h>

#define ROUNDING 1e-9 /* more than a few operations lose */

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
void fill_band(int64_t count, const double *x, const double *width, const double *y, double tick, double fast,
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
