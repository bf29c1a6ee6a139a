"""Unannotated Numba kernels: a tiled matrix product, and a sum with early exits."""

from __future__ import annotations

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
