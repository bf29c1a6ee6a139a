#ifndef KSCOPE_BOUNDS_H
#define KSCOPE_BOUNDS_H

/* Bands through the anchors of an SM, see bounds.c. */

#include <stdint.h>

static inline double larger(double a, double b)
{
    return a > b ? a : b;
}

static inline double smaller(double a, double b)
{
    return a < b ? a : b;
}

void fill_band(int64_t count, const double *x, const double *width, const double *y, double tick, double fast,
               double slow, double *low, double *high);

#endif
