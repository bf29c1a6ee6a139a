/* Groups of equal values; util/runs.py and util/reduction.py do the same in numpy. */

#include "native.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mixed(uint64_t value)
{
    value *= UINT64_C(0x9E3779B97F4A7C15);
    return value ^ value >> 32;
}

/* Number the distinct values in order of appearance.
   group: of each value. first: index of each group's first member, room for `count`. Returns the number of groups, or
   -1 without memory. */
int64_t ks_groups(const uint64_t *values, int64_t count, int64_t *group, int64_t *first)
{
    uint64_t mask = 1023;
    int64_t found = 0, last = -1;
    int64_t *slots = malloc(sizeof(int64_t) * (mask + 1)); /* groups, -1 where free */
    if (!slots)
        return -1;
    memset(slots, 0xff, sizeof(int64_t) * (mask + 1));
    for (int64_t i = 0; i < count; i++) {
        if (last >= 0 && values[first[last]] == values[i]) {
            group[i] = last;
            continue;
        }
        uint64_t slot = mixed(values[i]) & mask;
        while (slots[slot] >= 0 && values[first[slots[slot]]] != values[i])
            slot = (slot + 1) & mask;
        if (slots[slot] < 0) {
            first[found] = i;
            slots[slot] = found++;
            if ((uint64_t)found * 2 > mask) { /* at most half full */
                free(slots);
                mask = 4 * mask + 3;
                if (!(slots = malloc(sizeof(int64_t) * (mask + 1))))
                    return -1;
                memset(slots, 0xff, sizeof(int64_t) * (mask + 1));
                for (int64_t one = 0; one < found; one++) {
                    slot = mixed(values[first[one]]) & mask;
                    while (slots[slot] >= 0)
                        slot = (slot + 1) & mask;
                    slots[slot] = one;
                }
                last = found - 1;
                group[i] = last;
                continue;
            }
        }
        last = slots[slot];
        group[i] = last;
    }
    free(slots);
    return found;
}

/* Indices of the values in order of their keys, stable. keys: 0..groups. begin: (groups + 1,), where each key's indices
   begin. */
int64_t ks_order(const int64_t *keys, int64_t count, int64_t groups, int64_t *begin, int64_t *order)
{
    memset(begin, 0, sizeof(int64_t) * (size_t)(groups + 1));
    for (int64_t i = 0; i < count; i++)
        begin[keys[i] + 1]++;
    for (int64_t one = 0; one < groups; one++)
        begin[one + 1] += begin[one];
    for (int64_t i = 0; i < count; i++)
        order[begin[keys[i]]++] = i;
    memmove(begin + 1, begin, sizeof(int64_t) * (size_t)groups);
    begin[0] = 0;
    return 0;
}

/* By group of each row: the sums of the first columns, the least values of the next ones, and the largest ones of the
   last; NaN if any is. found: (columns, groups), what there was before. */
int64_t ks_reduce(int64_t rows, const int64_t *group, int64_t groups, int64_t sums, int64_t least, int64_t most,
                  const double *const *columns, double *found)
{
    for (int64_t i = 0; i < rows; i++) { /* row by row: the next addition to a sum must wait for the last one */
        double *to = found + group[i];
        int64_t column = 0;
        for (; column < sums; column++, to += groups)
            *to += columns[column][i];
        for (; column < sums + least; column++, to += groups)
            if (columns[column][i] < *to || columns[column][i] != columns[column][i])
                *to = columns[column][i];
        for (; column < sums + least + most; column++, to += groups)
            if (columns[column][i] > *to || columns[column][i] != columns[column][i])
                *to = columns[column][i];
    }
    return 0;
}
