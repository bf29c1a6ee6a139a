"""Kernels that nobody annotated, in CUDA C++ and Numba: a tiled product of matrices, and a sum that leaves early.

What lives here: kernels, and the lines of this file on which their statements stand. What does not: launching them
(test_selected.py).
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

SIZE, TILE = 256, 16
FILE = Path(__file__).name
LIMIT = 5
"""The turn in which `leaves` ends."""

SOURCE = r"""
extern "C" __global__ void product(const float* a, const float* b, float* c, int size) {
    __shared__ float left[16][17], right[16][16];
    int row = 16 * blockIdx.y + threadIdx.y, column = 16 * blockIdx.x + threadIdx.x;
    float total = 0;
    for (int k = 0; k < size; k += 16) {
        left[threadIdx.y][threadIdx.x] = a[row * size + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * size + column];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; ++i)
            total += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    c[row * size + column] = total;
}

extern "C" __global__ void leaves(int* out, int n) {
    int total = 0;
    for (int k = 0; k < n; ++k) {
        if (k == 5) {
            out[blockIdx.x] = total;
            return;
        }
        if (k == 2) continue;
        total += k;
    }
    out[blockIdx.x] = -1;
}
"""


@lru_cache
def line(text: str, after: str = "") -> int:
    """The line of this file that begins with this text, behind the first one that has the other text in it."""
    rows = Path(__file__).read_text().splitlines()
    start = next(number for number, row in enumerate(rows) if after in row)
    return next(number for number, row in enumerate(rows[start:], start + 1) if row.strip().startswith(text))


def numba_kernels() -> tuple[Any, Any]:
    """product and leaves, as Numba has them."""
    from numba import cuda, float32

    @cuda.jit
    def product(a, b, c, size):  # type: ignore[no-untyped-def]  # a kernel's types are its arguments'
        left = cuda.shared.array((16, 17), float32)
        right = cuda.shared.array((16, 16), float32)
        row = 16 * cuda.blockIdx.y + cuda.threadIdx.y
        column = 16 * cuda.blockIdx.x + cuda.threadIdx.x
        total = float32(0)
        for k in range(0, size, 16):
            left[cuda.threadIdx.y, cuda.threadIdx.x] = a[row, k + cuda.threadIdx.x]
            right[cuda.threadIdx.y, cuda.threadIdx.x] = b[k + cuda.threadIdx.y, column]
            cuda.syncthreads()
            for i in range(16):
                total += left[cuda.threadIdx.y, i] * right[i, cuda.threadIdx.x]
            cuda.syncthreads()
        c[row, column] = total

    @cuda.jit
    def leaves(out, n):  # type: ignore[no-untyped-def]
        total = 0
        for k in range(n):
            if k == 5:
                out[cuda.blockIdx.x] = total
                return
            if k == 2:
                continue
            total += k
        out[cuda.blockIdx.x] = -1

    return product, leaves
