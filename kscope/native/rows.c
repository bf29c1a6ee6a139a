/* Rows of bytes. */

#include "native.h"

#include <string.h>

/* Write `count` rows of `width` bytes, but at places at[0..others), ascending, those of `other`, `other_width` bytes. */
int64_t ks_splice(const uint8_t *rows, int64_t count, int64_t width, const int64_t *at, int64_t others,
                  const uint8_t *other, int64_t other_width, uint8_t *out)
{
    int64_t row = 0;
    for (int64_t i = 0; i < others; i++) {
        memcpy(out, rows + row * width, (size_t)((at[i] - row) * width));
        out += (at[i] - row) * width;
        memcpy(out, other + i * other_width, (size_t)other_width);
        out += other_width;
        row = at[i] + 1;
    }
    memcpy(out, rows + row * width, (size_t)((count - row) * width));
    return 0;
}
