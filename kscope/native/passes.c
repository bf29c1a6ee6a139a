/* Batches of a pass, one after the other, without a return to the interpreter: its lock may take milliseconds to get.
   kscope_runtime/drain_pass.py explains them. */

#include "batches.h"
#include "steps.h"

#include <string.h>

typedef int (*any_function)(uint64_t first, uint64_t second, uint64_t third, uint64_t fourth);

enum { HEAD_WORD = 0, SKIPPED_WORD = 1, SLOTS = 1 << 16, LATE = 4, FREE_SHARE = 4 };
static const uint32_t FAR = (uint32_t)1 << 31;
static const double LEAST_DELAY_S = 0.001, MOST_DELAY_S = 0.032, MOST_S = 0.01; /* how long news may wait */

/* Call the driver. After an error, calls are left out. */
static void call(struct pass *pass, uint64_t function, uint64_t first, uint64_t second, uint64_t third, uint64_t fourth)
{
    if (!pass->failed && (pass->result = ((any_function)(uintptr_t)function)(first, second, third, fourth)))
        pass->failed = function;
}

static uint64_t address(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

/* The one or two ranges of a ring that hold units from a position on. Returns how many there are. */
static int ranges_of(const struct pass *pass, int64_t stripe, uint32_t position, int64_t units, uint64_t *at, uint64_t *bytes)
{
    const uint32_t *const words = pass->table + stripe * STRIPE_WORDS;
    const int64_t first = position & words[MASK], to_edge = (int64_t)words[MASK] + 1 - first;
    const int64_t straight = units < to_edge ? units : to_edge;
    at[0] = two(words + BASE) + (uint64_t)first * UNIT_WORDS * 4;
    at[1] = two(words + BASE);
    bytes[0] = (uint64_t)straight * UNIT_WORDS * 4;
    bytes[1] = (uint64_t)(units - straight) * UNIT_WORDS * 4;
    return bytes[0] ? bytes[1] ? 2 : 1 : 0;
}

/* Request a batch's copy. */
static void fetch(struct pass *pass, int64_t batch)
{
    uint64_t to = address(pass->place[batch % PLACES]), at[2], bytes[2];
    for (int64_t i = pass->bounds[batch]; i < pass->bounds[batch + 1]; i++) {
        const int count = ranges_of(pass, pass->stripe[i], pass->tail[i], pass->units[i], at, bytes);
        for (int one = 0; one < count; to += bytes[one++])
            call(pass, pass->read, to, at[one], bytes[one], pass->stream);
    }
    pass->fetched = batch + 1;
}

/* Write all limits, after the clears before. */
static void write_limits(struct pass *pass)
{
    const uint64_t width = sizeof *pass->limits, host = 1, device = 2;
    for (int64_t i = 0; i < pass->stripes; i++)
        pass->limits[i] = pass->turned[i] ? pass->control[i * STRIPE_WORDS + HEAD_WORD] : pass->limit[i];
    const uint64_t copy[] = {0, 0, host, address(pass->limits), 0, 0, width, 0, 0, device, 0, pass->limits_at, 0,
                             STRIPE_WORDS * 4, width, (uint64_t)pass->stripes}; /* a CUDA_MEMCPY2D */
    call(pass, pass->write_column, address(copy), pass->writes, 0, 0);
}

/* Clear the memory of a batch and let it be claimed again. */
static void clear(struct pass *pass, int64_t batch)
{
    const int64_t from = pass->bounds[batch], parts = pass->bounds[batch + 1] - from;
    const int64_t *const free = pass->columns[batch % SETS].free;
    int64_t total = 0;
    call(pass, pass->synchronize, pass->writes, 0, 0, 0); /* the limits of the batch before */
    for (int64_t p = 0; p < parts; p++) {
        total += free[p];
        const int64_t units = free[p] < pass->units[from + p] ? free[p] : pass->units[from + p];
        uint64_t at[2], bytes[2];
        const int count = ranges_of(pass, pass->stripe[from + p], pass->tail[from + p], units, at, bytes);
        for (int one = 0; one < count; one++)
            for (uint64_t done = 0, more; done < bytes[one]; done += more) {
                more = bytes[one] - done < (uint64_t)pass->zeros_bytes ? bytes[one] - done : (uint64_t)pass->zeros_bytes;
                call(pass, pass->write, at[one] + done, pass->zeros, more, pass->writes);
            }
    }
    if (total)
        write_limits(pass);
}

static void clear_pending(struct pass *pass)
{
    if (pass->pending >= 0)
        clear(pass, pass->pending);
    pass->pending = -1;
}

static uint32_t not_below(uint32_t position, uint32_t tail)
{
    return (int32_t)(position - tail) < 0 ? tail : position;
}

/* Note new heads: Stripes.saw(). Returns whether positions of a stripe have become ambiguous. */
static int see(struct pass *pass)
{
    int turned = 0;
    uint64_t all = 0, pool = 0, claimed = 0, ring = 0;
    for (int64_t i = 0; i < pass->stripes; i++) {
        const uint32_t head = pass->control[i * STRIPE_WORDS + HEAD_WORD], tail = pass->tails[i];
        const int over = (int32_t)(pass->then[i] - head) < 0;
        pass->clean[i] = over ? head : not_below(pass->clean[i], tail);
        pass->proven[i] = not_below(pass->proven[i], tail);
        pass->then[i] = pass->limits[i]; /* as last written: those of batches that are to be cleared are not */
        pass->turned[i] |= head - tail > FAR;
        turned |= pass->turned[i];
        ring = pass->ring[i];
        claimed = pass->turned[i] ? ring : head - tail;
        all += claimed;
        pool += ring;
    }
    pass->has_room = FREE_SHARE * claimed <= ring && FREE_SHARE * all <= pool; /* the last one is the reserve */
    return turned;
}

/* Read the stripes, and the entries of launches to come. All copies that were requested have arrived then. */
static void read_stripes(struct pass *pass)
{
    const uint64_t bytes = (uint64_t)pass->stripes * STRIPE_WORDS * 4, entry = LAUNCH_WORDS * 4;
    const int64_t first = pass->next < SLOTS - pass->window ? pass->next : SLOTS - pass->window;
    pass->reading = seconds();
    if (pass->next >= 0)
        call(pass, pass->read, address(pass->ahead), pass->launches_at + (uint64_t)first * entry,
             (uint64_t)pass->window * entry, pass->stream);
    call(pass, pass->read, address(pass->before), pass->words_at, bytes, pass->stream);
    call(pass, pass->synchronize, pass->stream, 0, 0, 0);
    call(pass, pass->read, address(pass->control), pass->words_at, bytes, pass->stream);
    call(pass, pass->synchronize, pass->stream, 0, 0, 0);
    if (pass->failed)
        return;
    if (pass->next >= 0) {
        const double now = seconds();
        for (int64_t slot = first; slot < first + pass->window; slot++)
            pass->read_at[slot] = now;
        const int64_t next = ks_learn(pass->ahead, pass->window, first, pass->epoch, pass->rows, pass->grid, pass->log2);
        pass->next = next < 0 ? pass->next : next;
    }
    if (see(pass)) {
        clear_pending(pass); /* before its limits are written */
        call(pass, pass->synchronize, pass->writes, 0, 0, 0);
        write_limits(pass);
    }
}

/* Wait for the batch's copy, and read the stripes if it is not the first one. */
static void arrive(struct pass *pass)
{
    if (pass->fetched <= pass->batch)
        fetch(pass, pass->batch);
    if (pass->batch)
        read_stripes(pass);
    else
        call(pass, pass->synchronize, pass->stream, 0, 0, 0);
    pass->ready = 1;
}

/* Move the tails of a batch. */
static void free_batch(struct pass *pass, int64_t batch)
{
    const int64_t from = pass->bounds[batch], parts = pass->bounds[batch + 1] - from;
    const int64_t *const free = pass->columns[batch % SETS].free;
    const double now = seconds();
    int64_t total = 0;
    for (int64_t p = 0; p < parts; p++) {
        const int64_t stripe = pass->stripe[from + p], units = pass->units[from + p], whole = pass->whole[from + p];
        const int late = free[p] * LATE < units; /* an open slab blocks those after it: read less often */
        const double longer = 2 * pass->delay[stripe] < MOST_DELAY_S ? 2 * pass->delay[stripe] : MOST_DELAY_S;
        pass->delay[stripe] = late ? longer : LEAST_DELAY_S;
        pass->again[stripe] = late ? now + longer : now;
        pass->tails[stripe] = pass->tail[from + p] + (uint32_t)free[p];
        pass->turned[stripe] &= !(whole && free[p] >= units);
        if (!pass->turned[stripe])
            pass->limit[stripe] = pass->tails[stripe] + pass->ring[stripe];
        pass->stuck[stripe] |= !whole && !free[p];
        total += free[p];
    }
    pass->freed += total;
}

void release(struct pass *pass, int64_t batch)
{
    free_batch(pass, batch);
    clear(pass, batch);
}

void go_on(struct pass *pass)
{
    if (pass->batch + 1 < pass->batches && pass->fetched == pass->batch + 1)
        fetch(pass, pass->batch + 1);
    clear_pending(pass);
}

/* Wait until everything is written and kept, and freed. */
static void settle(struct pass *pass)
{
    clear_pending(pass);
    finish_writing(pass);
    finish_keeping(pass);
}

static int64_t failure(struct pass *pass)
{
    settle(pass);
    return FAILED;
}

/* Take the batches of a pass from the next one on. Returns why it stopped: DONE; FAILED, a call of the driver; the
   batch, whose copy has arrived, is UNUSUAL, or entries of its launches are MISSING, or there is no room for its lines
   (FULL); NEWS, whether the pool has room. Without memory -1. Unless it is DONE, FAILED or UNUSUAL, slabs may still be
   written. */
int64_t ks_batches(struct pass *pass)
{
    const double began = seconds();
    const int64_t had_room = pass->has_room;
    for (; pass->batch < pass->batches; pass->batch++, pass->ready = 0) {
        if (!pass->ready)
            arrive(pass);
        if (pass->failed)
            return failure(pass);
        if (pass->has_room != had_room || seconds() - began > MOST_S) {
            go_on(pass);
            return NEWS;
        }
        const int64_t status = take_batch(pass);
        if (status == UNUSUAL || status < 0) {
            settle(pass);
            call(pass, pass->synchronize, pass->writes, 0, 0, 0);
        }
        if (status)
            return pass->failed ? failure(pass) : status;
        if (!pass->kept) {
            free_batch(pass, pass->batch);
            pass->pending = pass->batch; /* to clear it, threads need not wait */
        }
    }
    clear_pending(pass);
    if (pass->kept) /* which frees the last batches */
        settle(pass);
    if (!pass->failed)
        read_stripes(pass);
    settle(pass);
    call(pass, pass->synchronize, pass->writes, 0, 0, 0);
    return pass->failed ? FAILED : DONE;
}

/* Bytes of a pass. */
int64_t ks_pass_bytes(void)
{
    return sizeof(struct pass);
}

/* Wait for what ks_batches() has begun to write, and to keep. */
int64_t ks_finish(struct pass *pass)
{
    settle(pass);
    if (pass->batch < pass->batches) /* the next pass writes limits to the same memory */
        call(pass, pass->synchronize, pass->writes, 0, 0, 0);
    return 0;
}
