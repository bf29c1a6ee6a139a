/* Sums of the spans of each warp and region; analysis/warp_regions.py does the same in numpy, also for spans that cross,
   are empty, or of unknown duration. */

#include "native.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const int32_t *track;
    const int64_t *start, *took;
    int64_t *own, *idle; /* of each span: without spans inside, and in no region before it */
    int64_t *open;       /* spans of the warp so far that are in no other, in order */
} Spans;

/* own and idle of the spans first..last of one warp, in order of end. Returns 0 if any crosses another, or is empty. */
static int nest(const Spans *spans, int64_t first, int64_t last, int64_t first_tick, int64_t *covered, int64_t *quiet,
                int64_t *last_end)
{
    int64_t depth = 0, reach = first_tick;
    for (int64_t i = first; i < last; i++) {
        const int64_t start = spans->start[i], end = start + spans->took[i];
        if (spans->took[i] <= 0 || (i > first && end < spans->start[i - 1] + spans->took[i - 1]))
            return 0;
        spans->own[i] = spans->took[i];
        spans->idle[i] = 0;
        for (; depth && spans->start[spans->open[depth - 1]] >= start; depth--)
            spans->own[i] -= spans->took[spans->open[depth - 1]];
        if (depth && spans->start[spans->open[depth - 1]] + spans->took[spans->open[depth - 1]] > start)
            return 0;
        spans->open[depth++] = i;
    }
    *covered = *quiet = 0;
    for (int64_t at = 0; at < depth; at++) {
        const int64_t i = spans->open[at], gap = spans->start[i] - reach;
        spans->idle[i] = gap > 0 ? gap : 0;
        reach = spans->start[i] + spans->took[i];
        *covered += spans->took[i];
        *quiet = spans->idle[i] > *quiet ? spans->idle[i] : *quiet;
    }
    *last_end = reach;
    return 1;
}

/* Rows of the spans (count,), by name and then by warp; see WarpRegions.
   code: the name of each region, one of `names`. at: index of the first duration in the whole trace. first_tick,
   tick_ns, covered, quiet, last_end: by track. Returns the number of rows; 0 if the spans are not all known, nested and
   longer than 0; -1 without memory. */
int64_t ks_regions(int64_t count, int64_t names, const int32_t *track, const int64_t *start, const int64_t *took,
                   const uint16_t *region, const uint16_t *code, const int64_t *first_tick, const double *tick_ns,
                   int64_t at, double *values, int64_t *covered, int64_t *quiet, int64_t *last_end, int64_t *row_track,
                   int64_t *row_name, int64_t *row_count, int64_t *row_unknown, int64_t *row_total, int64_t *row_own,
                   int64_t *row_idle, int64_t *row_first, int64_t *row_last, int64_t *row_offset)
{
    int64_t *const space = malloc(sizeof(int64_t) * (size_t)(3 * count + 3 * (names + 1)));
    if (!space)
        return -1;
    int64_t *const place = space + 3 * count, *const row_of = place + names + 1, *const lane_of = row_of + names + 1;
    const Spans spans = {track, start, took, space, space + count, space + 2 * count};
    int sound = 1;
    for (int64_t i = 0, next; i < count && sound; i = next) {
        const int32_t lane = track[i];
        for (next = i + 1; next < count && track[next] == lane;)
            next++;
        sound = nest(&spans, i, next, first_tick[lane], covered + lane, quiet + lane, last_end + lane);
    }
    memset(place, 0, sizeof(int64_t) * (size_t)(2 * (names + 1)));
    memset(lane_of, 0xff, sizeof(int64_t) * (size_t)(names + 1));
    for (int64_t i = 0; i < count && sound; i++) {
        const int64_t name = code[region[i]];
        sound = name < names;
        if (!sound)
            break;
        place[name + 1]++;
        row_of[name + 1] += lane_of[name] != track[i];
        lane_of[name] = track[i];
    }
    if (!sound) {
        free(space);
        return 0;
    }
    for (int64_t name = 0; name < names; name++) {
        place[name + 1] += place[name];
        row_of[name + 1] += row_of[name];
    }
    const int64_t rows = row_of[names];
    memset(lane_of, 0xff, sizeof(int64_t) * (size_t)(names + 1));
    for (int64_t i = 0; i < count; i++) {
        const int64_t name = code[region[i]], to = place[name]++;
        values[to] = (double)took[i] * tick_ns[track[i]];
        if (lane_of[name] != track[i]) {
            const int64_t row = row_of[name]++;
            lane_of[name] = row_track[row] = track[i];
            row_name[row] = name;
            row_count[row] = row_unknown[row] = row_total[row] = row_own[row] = row_idle[row] = 0;
            row_first[row] = row_last[row] = start[i];
            row_offset[row] = at + to;
        }
        const int64_t row = row_of[name] - 1;
        row_count[row]++;
        row_total[row] += took[i];
        row_own[row] += spans.own[i];
        row_idle[row] += spans.idle[i];
        row_first[row] = start[i] < row_first[row] ? start[i] : row_first[row];
        row_last[row] = start[i] > row_last[row] ? start[i] : row_last[row];
    }
    free(space);
    return rows;
}
