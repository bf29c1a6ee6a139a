/* Many calls of functions, without a return to the interpreter between them. */

#define _POSIX_C_SOURCE 200809L /* for nanosleep */

#include "wire.h"

#include <time.h>

typedef int (*any_function)(uint64_t first, uint64_t second, uint64_t third, uint64_t fourth);

enum { CALL_WORDS = 5, RESULT_BITS = 16, NOT_READY = 600, POLL_NS = 10000 };

/* Make calls until one fails. calls: (count, 5) the address of a function that returns an int, and four arguments: a
   function that takes fewer ignores the others, which are in registers on every machine that CUDA supports.
   Returns 0 if all return 0, else index << 16 | result of the one that did not. */
int64_t ks_calls(int64_t count, const uint64_t *calls)
{
    for (int64_t i = 0; i < count; i++) {
        const uint64_t *const call = calls + i * CALL_WORDS;
        const int result = ((any_function)(uintptr_t)call[0])(call[1], call[2], call[3], call[4]);
        if (result)
            return i << RESULT_BITS | result;
    }
    return 0;
}

/* Copy, and poll the stream until the copy has arrived, for most_ns at most. copy, query: addresses of functions of the
   driver. Copies nothing while an earlier copy is on its way.
   Returns the driver's last result: 0 if the copy arrived. */
int64_t ks_polled(int64_t copy, int64_t query, int64_t stream, uint64_t *to, int64_t from, int64_t size, int64_t most_ns)
{
    const any_function is_ready = (any_function)(uintptr_t)query;
    int result = is_ready((uint64_t)stream, 0, 0, 0);
    if (!result)
        result = ((any_function)(uintptr_t)copy)((uint64_t)(uintptr_t)to, (uint64_t)from, (uint64_t)size, (uint64_t)stream);
    if (result)
        return result;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while ((result = is_ready((uint64_t)stream, 0, 0, 0)) == NOT_READY) {
        const struct timespec pause = {0, POLL_NS};
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((now.tv_sec - start.tv_sec) * 1000000000 + now.tv_nsec - start.tv_nsec > most_ns)
            break;
        nanosleep(&pause, 0);
    }
    return result;
}

/* The one or two ranges of each ring that hold its units from the tail on, without empty ones.
   stripes: (rings, STRIPE_WORDS). tail, units: (rings,). address, size: room for two ranges per ring. Returns how many
   there are. */
int64_t ks_rings(int64_t rings, const uint32_t *stripes, const uint32_t *tail, const int64_t *units, uint64_t *address,
                 int64_t *size)
{
    int64_t count = 0;
    for (int64_t i = 0; i < rings; i++, stripes += STRIPE_WORDS) {
        const int64_t at = tail[i] & stripes[MASK], to_edge = (int64_t)stripes[MASK] + 1 - at;
        const int64_t straight = units[i] < to_edge ? units[i] : to_edge, sizes[] = {straight, units[i] - straight};
        for (int part = 0; part < 2; part++)
            if (sizes[part] > 0) {
                address[count] = two(stripes + BASE) + (uint64_t)(part ? 0 : at) * UNIT_WORDS * 4;
                size[count++] = sizes[part] * UNIT_WORDS * 4;
            }
    }
    return count;
}
