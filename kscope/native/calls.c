/* Many calls of a function, without a return to the interpreter between them. */

#include "native.h"

typedef int (*copy_function)(uint64_t to, uint64_t from, uint64_t size, uint64_t stream);

/* Call the function at address `function`, which copies, for each row, until a call fails.
   Returns the result of the last call, 0 if all succeeded. */
int64_t ks_copies(int64_t function, int64_t count, const uint64_t *to, const uint64_t *from, const int64_t *size,
                  int64_t stream)
{
    const copy_function copy = (copy_function)(intptr_t)function;
    int result = 0;
    for (int64_t i = 0; i < count && !result; i++)
        result = copy(to[i], from[i], (uint64_t)size[i], (uint64_t)stream);
    return result;
}
