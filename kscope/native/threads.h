#ifndef KSCOPE_THREADS_H
#define KSCOPE_THREADS_H

#include "native.h"

/* Call job(context, 0) to job(context, jobs - 1), on this thread and on up to `threads` - 1 others. */
void in_parallel(void (*job)(void *context, int64_t index), void *context, int64_t jobs, int64_t threads);

/* How many steps there are of `step` each, and where one ends. */
static inline int64_t steps_of(int64_t count, int64_t step)
{
    return (count + step - 1) / step;
}

static inline int64_t step_end(int64_t index, int64_t count, int64_t step)
{
    return (index + 1) * step < count ? (index + 1) * step : count;
}

/* As many of the threads as have `least` each to do, at least one. */
static inline int64_t worth(int64_t threads, int64_t count, int64_t least)
{
    return count / least + 1 < threads ? count / least + 1 : threads;
}

#endif
