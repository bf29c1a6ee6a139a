/* The wait for claims; kscope_runtime/claim_wait.py uses it. */

#define _GNU_SOURCE /* for ppoll */

#include "wire.h"

#include <poll.h>
#include <string.h>
#include <time.h>

typedef int (*copy_function)(uint64_t to, uint64_t from, uint64_t size, uint64_t stream);
typedef int (*wait_function)(uint64_t stream);

static void pause_for(int64_t ns, struct pollfd *wake)
{
    const struct timespec time = {ns / 1000000000, ns % 1000000000};
    ppoll(wake, 1, &time, NULL);
}

/* Read the stripes' heads again and again, until
   - one is `enough` (stripes,) units beyond its tail,
   - the second half of the launch table's part has changed, if that is read, too,
   - `wake`, a descriptor, can be read, or
   - total_ns have passed.
   The first reading is made at once, the second one after first_ns, each later one after twice as long as the one
   before, up to most_ns.
   count: copies of a reading, 1 without the part, else 2. into, address, size: of each, in bytes. pitch: words from one
   head to the next; the first one is the first word. before: memory for half of the part.
   Returns the result of the last call of the driver. */
int64_t ks_look(int64_t copy, int64_t wait, int64_t stream, int64_t count, const uint64_t *into, const uint64_t *address,
                const int64_t *size, int64_t stripes, int64_t pitch, const uint32_t *tail, const uint32_t *enough,
                uint32_t *before, int64_t wake, int64_t first_ns, int64_t most_ns, int64_t total_ns)
{
    const uint32_t *const head = (const uint32_t *)(intptr_t)into[0];
    struct pollfd woken = {(int)wake, POLLIN, 0};
    int64_t passed = 0, half = 0;
    const char *later = NULL;
    if (count > 1) {
        half = size[1] / 2;
        later = (const char *)(intptr_t)into[1] + half;
    }
    for (int64_t pause = 0; passed <= total_ns; passed += pause) {
        pause_for(pause, &woken);
        if (woken.revents)
            return 0;
        int result = 0;
        for (int64_t i = 0; i < count && !result; i++)
            result = ((copy_function)(intptr_t)copy)(into[i], address[i], (uint64_t)size[i], (uint64_t)stream);
        if (!result)
            result = ((wait_function)(intptr_t)wait)((uint64_t)stream);
        if (result)
            return result;
        for (int64_t i = 0; i < stripes; i++)
            if (head[i * pitch] - tail[i] >= enough[i])
                return 0;
        if (half && pause && memcmp(before, later, (size_t)half))
            return 0;
        if (half && !pause)
            memcpy(before, later, (size_t)half);
        pause = pause ? 2 * pause : first_ns;
        pause = pause < most_ns ? pause : most_ns;
    }
    return 0;
}
