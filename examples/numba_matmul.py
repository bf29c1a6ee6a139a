"""A matrix product with tiles in shared memory, in Numba: is it the loads, or the arithmetic?

    python examples/numba_matmul.py

On a GPU: multiplies two 1024 x 1024 matrices, checks the product against numpy, writes matmul.kscope, and prints one
line per region. With NUMBA_ENABLE_CUDASIM=1 the same kernel runs on the CPU, on small ones. Without either: says so.
"""

from __future__ import annotations

import os

import numpy as np
from numba import cuda, float32

import kscope

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")
TILE = 4 if SIMULATED else 16
SIZE = 8 if SIMULATED else 1024


@cuda.jit
def matmul(a, b, c):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    with kscope.region("mainloop"):
        for k in range(0, a.shape[1], TILE):
            with kscope.region("load", value=k):
                left[y, x] = a[row, k + x]
                right[y, x] = b[k + y, column]
                cuda.syncthreads()
            with kscope.region("multiply"):
                for i in range(TILE):
                    total += left[y, i] * right[i, x]
                cuda.syncthreads()
    with kscope.region("store"):
        c[row, column] = total


def main() -> None:
    if not cuda.is_available():
        print("no GPU here: NUMBA_ENABLE_CUDASIM=1 python examples/numba_matmul.py simulates one")
        return
    numbers = np.random.default_rng(0)
    left, right = (numbers.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in range(2))
    a, b = cuda.to_device(left), cuda.to_device(right)
    c = cuda.device_array((SIZE, SIZE), np.float32)
    grid, block = (SIZE // TILE, SIZE // TILE), (TILE, TILE)
    with kscope.profile("matmul.kscope") as prof:
        matmul[grid, block](a, b, c)
    np.testing.assert_allclose(c.copy_to_host(), left @ right, rtol=1e-3, atol=1e-3)
    # Every warp records the loop, the store, and two regions in each iteration.
    warps = grid[0] * grid[1] * -(-TILE * TILE // 32)
    expected = warps * (2 + 2 * SIZE // TILE)
    assert len(prof.trace) == expected, f"{len(prof.trace)} records, expected {expected}"
    print(prof.trace.summary())
    print("matmul.kscope: kscope export matmul.kscope -o matmul.pftrace, then open it in ui.perfetto.dev")


if __name__ == "__main__":
    main()
