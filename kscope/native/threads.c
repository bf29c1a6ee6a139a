/* Threads that wait for work. They end after a second without any, so a program that forks later has none. Waking one
   costs less than starting one, and none of them needs the interpreter's lock. */

#define _POSIX_C_SOURCE 200809L /* for pthread_sigmask */

#include "threads.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_THREADS = 64, IDLE_S = 1, WOKEN = 2 };

/* The lock protects these and the works. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static _Atomic(struct work *) queue; /* calls that want threads, the newest one first; others may read it as a hint */
static int64_t threads_alive, threads_busy, threads_lent; /* lent: to work that no caller waits for soon */
static int forking;

static pthread_key_t kept_key;
static int has_key;

struct kept {
    size_t bytes;
    max_align_t memory[];
};

static void make_key(void)
{
    has_key = !pthread_key_create(&kept_key, free);
}

void *kept_memory(size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_key);
    struct kept *kept = has_key ? pthread_getspecific(kept_key) : NULL;
    if (has_key && (!kept || kept->bytes < bytes)) {
        free(kept);
        kept = malloc(sizeof *kept + bytes);
        pthread_setspecific(kept_key, kept);
        if (kept)
            kept->bytes = bytes;
    }
    return kept ? kept->memory : NULL;
}

/* Let no other thread join the work. */
static void leave_queue(struct work *work)
{
    struct work *before = queue;
    if (before == work)
        queue = work->later;
    for (; before && before != work; before = before->later)
        if (before->later == work)
            before->later = work->later;
}

/* Wait for work. Returns 0 after a second without any, and before a fork. */
static int wait_for_work(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += IDLE_S;
    for (int result = 0; !queue && !forking && result != ETIMEDOUT;)
        result = pthread_cond_timedwait(&wake, &lock, &until);
    return queue && !forking;
}

/* Wake threads: each wakes some more, so that the caller need not wake all. */
static void wake_some(void)
{
    for (int woken = 0; woken < WOKEN; woken++)
        pthread_cond_signal(&wake);
}

static void take_jobs(struct work *work);

/* With the lock: join the newest work. */
static void join_newest(void)
{
    struct work *const work = queue;
    const int lent = !work->soon;
    threads_lent += lent;
    work->working++;
    if (!--work->places)
        queue = work->later;
    if (queue)
        wake_some();
    pthread_mutex_unlock(&lock);
    take_jobs(work);
    pthread_mutex_lock(&lock);
    threads_lent -= lent;
    if (!--work->working)
        pthread_cond_signal(&work->finished);
}

static void take_jobs(struct work *work)
{
    for (int64_t index; (index = atomic_fetch_add(&work->next, 1)) < work->jobs;) {
        work->job(work->context, index);
        const struct work *const newest = queue; /* only compared: it may be over */
        if (work->soon || !newest || newest == work)
            continue;
        pthread_mutex_lock(&lock);
        if (queue && atomic_load(&queue)->soon)
            join_newest();
        pthread_mutex_unlock(&lock);
    }
}

static void *run(void *argument)
{
    pthread_mutex_lock(&lock);
    while (wait_for_work()) {
        threads_busy++;
        join_newest();
        threads_busy--;
    }
    threads_alive--;
    pthread_cond_broadcast(&ended); /* several threads may fork */
    pthread_mutex_unlock(&lock);
    return argument;
}

/* Idle threads end before a fork: Python warns of forks of programs with threads. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
    forking = 1;
    pthread_cond_broadcast(&wake);
    while (threads_alive > threads_busy)
        pthread_cond_wait(&ended, &lock);
    forking = 0;
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* The child has only the thread that forked. */
static void after_fork_in_child(void)
{
    queue = NULL;
    threads_alive = threads_busy = threads_lent = 0;
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* Start threads until `count` have nothing to do. */
static void start_threads(int64_t count)
{
    sigset_t all, before;
    pthread_attr_t detached;
    int64_t more = count - (threads_alive - threads_busy);
    if (more <= 0 || pthread_attr_init(&detached))
        return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* signals are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; more > 0 && threads_alive < MOST_THREADS; more--) {
        pthread_t thread;
        if (pthread_create(&thread, &detached, run, NULL))
            break;
        threads_alive++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
}

void begin_parallel(struct work *work, void (*job)(void *, int64_t), void *context, int64_t jobs, int64_t threads, int soon)
{
    *work = (struct work){.job = job, .context = context, .jobs = jobs, .soon = soon};
    work->places = threads < jobs ? threads : jobs;
    pthread_cond_init(&work->finished, NULL);
    if (work->places <= 0)
        return;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    start_threads(soon ? work->places - threads_lent : work->places); /* those that are lent will come */
    work->later = queue;
    queue = work;
    wake_some();
    pthread_mutex_unlock(&lock);
}

void finish_parallel(struct work *work)
{
    take_jobs(work);
    pthread_mutex_lock(&lock);
    leave_queue(work);
    while (work->working)
        pthread_cond_wait(&work->finished, &lock);
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&work->finished);
}

void in_parallel(void (*job)(void *, int64_t), void *context, int64_t jobs, int64_t threads)
{
    struct work work;
    begin_parallel(&work, job, context, jobs, (threads < jobs ? threads : jobs) - 1, 1);
    finish_parallel(&work);
}
