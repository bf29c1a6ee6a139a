"""A sum in Numba, block by block: how long do warps wait for each other in the tree?

    python examples/numba_reduction.py

On a GPU: adds up 16 million numbers, checks the sum, writes reduction.kscope, and prints one line per region. With
NUMBA_ENABLE_CUDASIM=1 the same kernel runs on the CPU, on a few numbers. Without either: exits.
"""

from __future__ import annotations

import os

import numpy as np
from numba import cuda, float64
from shared import show

import kscope

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")
THREADS = 64 if SIMULATED else 256
BLOCKS = 2 if SIMULATED else 528
COUNT = 500 if SIMULATED else 1 << 24


@cuda.jit(device=True)
def tree(partial, thread):
    """The sum of the block's partial sums, in partial[0]."""
    width = THREADS // 2
    while width > 0:
        with kscope.region("level", value=width):
            if thread < width:
                partial[thread] += partial[thread + width]
            with kscope.region("wait"):
                cuda.syncthreads()
        width //= 2


@cuda.jit
def total(x, out):
    partial = cuda.shared.array(THREADS, float64)
    thread = cuda.threadIdx.x
    with kscope.region("read"):
        mine = float64(0)
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            mine += x[i]
        partial[thread] = mine
    cuda.syncthreads()
    with kscope.region("tree"):
        tree(partial, thread)
    if thread == 0:
        with kscope.region("add", strategy=kscope.Lane0Warp0()):
            cuda.atomic.add(out, 0, partial[0])


def main() -> None:
    if not cuda.is_available():
        print("no GPU here: NUMBA_ENABLE_CUDASIM=1 python examples/numba_reduction.py simulates one")
        return
    numbers = np.random.default_rng(0).standard_normal(COUNT, dtype=np.float32)
    x, out = cuda.to_device(numbers), cuda.to_device(np.zeros(1))
    with kscope.profile("reduction.kscope") as prof:
        total[BLOCKS, THREADS](x, out)
    np.testing.assert_allclose(out.copy_to_host()[0], numbers.sum(dtype=np.float64), rtol=1e-9)
    levels = THREADS.bit_length() - 1
    expected = BLOCKS * (THREADS // 32 * (2 + 2 * levels) + 1)
    show(prof.trace, expected, "reduction")


if __name__ == "__main__":
    main()
