#ifndef KSCOPE_THREADS_H
#define KSCOPE_THREADS_H

#include "native.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

/* Call job(context, 0) to job(context, jobs - 1), on this thread and on up to `threads` - 1 others. */
void in_parallel(void (*job)(void *context, int64_t index), void *context, int64_t jobs, int64_t threads);

/* The same, but the caller does other things until finish_parallel(). soon: it will wait soon, as in_parallel() does. To
   such work threads come over from other work, after the job that they are at. */
struct work {
    void (*job)(void *, int64_t);
    void *context;
    int64_t jobs;
    atomic_int_fast64_t next;
    int64_t places, working; /* for threads that may still join; threads that have not finished */
    int soon;
    struct work *later;
    pthread_cond_t finished;
};
void begin_parallel(struct work *work, void (*job)(void *context, int64_t index), void *context, int64_t jobs,
                    int64_t threads, int soon);

/* Do what no thread has begun, and wait for what they have. */
void finish_parallel(struct work *work);

/* At least so many bytes, which this thread keeps; NULL without memory. What it had before is overwritten: pages that are
   touched for the first time cost more than what is written to them. */
void *kept_memory(size_t bytes);

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
