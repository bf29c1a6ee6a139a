"""A tiled matrix product in Numba. The same kernel as *_gemm.py in other languages, with the same regions.

    python examples/numba_gemm.py

On a GPU: multiplies two 1024 x 1024 matrices, checks the product against numpy, writes gemm.kscope, and prints one
line per region. With NUMBA_ENABLE_CUDASIM=1 the same kernel runs on the CPU, on small ones. Without either: exits.
"""

from __future__ import annotations

import os

import numpy as np
from numba import cuda, float32, int32
from shared import show

import kscope

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")
SIZE, TILE, DEPTH, EACH = (16, 8, 4, 2) if SIMULATED else (1024, 64, 16, 4)
"""A block computes TILE x TILE numbers, each of its threads EACH x EACH of them."""
ACROSS = TILE // EACH
THREADS = ACROSS * ACROSS
WIDE = DEPTH + 1  # no two rows of a tile begin in one bank of shared memory


@cuda.jit
def gemm(a, b, c):
    left = cuda.shared.array((TILE, WIDE), float32)
    right = cuda.shared.array((DEPTH, TILE), float32)
    total = cuda.local.array((EACH, EACH), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
    for i in range(EACH):
        for j in range(EACH):
            total[i, j] = 0
    for k in range(0, a.shape[1], DEPTH):
        with kscope.region("load", value=int32(k)):
            for i in range(y * ACROSS + x, TILE * DEPTH, THREADS):
                left[i // DEPTH, i % DEPTH] = a[row + i // DEPTH, k + i % DEPTH]
                right[i // TILE, i % TILE] = b[k + i // TILE, column + i % TILE]
            cuda.syncthreads()
        with kscope.region("multiply"):
            for inner in range(DEPTH):
                for i in range(EACH):
                    for j in range(EACH):
                        total[i, j] += left[y * EACH + i, inner] * right[inner, x * EACH + j]
            cuda.syncthreads()
    with kscope.region("store"):
        for i in range(EACH):
            for j in range(EACH):
                c[row + y * EACH + i, column + x * EACH + j] = total[i, j]


def run() -> int:
    """Launch once and check the result; returns the number of records."""
    numbers = np.random.default_rng(0)
    a, b = (numbers.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in range(2))
    c = cuda.device_array((SIZE, SIZE), np.float32)
    grid = (SIZE // TILE, SIZE // TILE)
    gemm[grid, (ACROSS, ACROSS)](cuda.to_device(a), cuda.to_device(b), c)
    np.testing.assert_allclose(c.copy_to_host(), a @ b, rtol=1e-3, atol=1e-3)
    # every warp of every block records the store, and two regions in each iteration
    return grid[0] * grid[1] * -(-THREADS // 32) * (1 + 2 * SIZE // DEPTH)


def main() -> None:
    if not cuda.is_available():
        print("no GPU here: NUMBA_ENABLE_CUDASIM=1 python examples/numba_gemm.py simulates one")
        return
    with kscope.profile("gemm.kscope") as prof:
        expected = run()
    show(prof.trace, expected, "gemm")


if __name__ == "__main__":
    main()
