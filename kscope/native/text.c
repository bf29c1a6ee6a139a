/* Columns of text; util/text_columns.py does the same in numpy. Cells that are not used hold 0. */

#include "native.h"

#include <string.h>

/* Write the used cells of the rows, row after row.
   cells, widths, steps: of each part its matrix, bytes of a row, and bytes from one row to the next; 0 where all rows
   are the same text. out: room for all cells, and one. Returns the number of bytes. */
int64_t ks_text(int64_t rows, int64_t parts, const uint8_t *const *cells, const int64_t *widths, const int64_t *steps,
                uint8_t *out)
{
    uint8_t *to = out;
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t part = 0; part < parts; part++) {
            const uint8_t *const from = cells[part] + row * steps[part];
            const int64_t width = widths[part];
            if (!steps[part]) {
                memcpy(to, from, (size_t)width);
                to += width;
                continue;
            }
            for (int64_t i = 0; i < width; i++) {
                *to = from[i];
                to += from[i] != 0;
            }
        }
    }
    return to - out;
}

/* Numbers as decimals of at least so many digits, at the end of their cells; size: digits of each. */
int64_t ks_decimals(const uint64_t *values, int64_t rows, int64_t width, int64_t least, uint8_t *cells, int64_t *size)
{
    memset(cells, 0, (size_t)(rows * width));
    for (int64_t row = 0; row < rows; row++) {
        uint8_t *const end = cells + (row + 1) * width;
        uint64_t rest = values[row];
        int64_t digits = 0;
        for (; digits < width && (rest || digits < least); rest /= 10)
            end[-++digits] = (uint8_t)('0' + rest % 10);
        size[row] = digits;
    }
    return 0;
}

/* Numbers from 1 as protobuf varints, at the beginning of their cells; size: bytes of each. */
int64_t ks_varints(const uint64_t *values, int64_t rows, int64_t width, uint8_t *cells, int64_t *size)
{
    memset(cells, 0, (size_t)(rows * width));
    for (int64_t row = 0; row < rows; row++) {
        uint8_t *const at = cells + row * width;
        uint64_t rest = values[row];
        int64_t bytes = 0;
        for (; bytes < width - 1 && rest > 127; rest >>= 7)
            at[bytes++] = (uint8_t)(rest & 127) | 128;
        at[bytes++] = (uint8_t)rest;
        size[row] = bytes;
    }
    return 0;
}
