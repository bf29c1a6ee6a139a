/* Threads that live for one call. Starting them costs less than threads of the interpreter, which wait for its lock. */

#define _POSIX_C_SOURCE 200809L /* for pthread_sigmask */

#include "threads.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

enum { MOST_THREADS = 64 };

struct work {
    void (*job)(void *, int64_t);
    void *context;
    int64_t jobs;
    atomic_int_fast64_t next;
};

static void *take_jobs(void *argument)
{
    struct work *const work = argument;
    for (int64_t index; (index = atomic_fetch_add(&work->next, 1)) < work->jobs;)
        work->job(work->context, index);
    return NULL;
}

void in_parallel(void (*job)(void *, int64_t), void *context, int64_t jobs, int64_t threads)
{
    struct work work = {job, context, jobs, 0};
    pthread_t others[MOST_THREADS];
    int64_t count = (threads < jobs ? threads : jobs) - 1, started = 0;
    if (count > MOST_THREADS)
        count = MOST_THREADS;
    if (count > 0) { /* signals are for the program's threads */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        while (started < count && !pthread_create(&others[started], NULL, take_jobs, &work))
            started++;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    take_jobs(&work);
    while (started)
        pthread_join(others[--started], NULL);
}
