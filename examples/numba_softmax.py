"""A softmax in Numba: three passes over a row. The same kernel as *_softmax.py in other languages, same regions.

    python examples/numba_softmax.py

On a GPU: computes the softmax of 4096 rows, checks it against numpy, writes softmax.kscope, and prints one line per
region. With NUMBA_ENABLE_CUDASIM=1 the same kernel runs on the CPU, on two short rows. Without either: exits.
"""

from __future__ import annotations

import math
import os

import numpy as np
from numba import cuda, float32
from shared import show

import kscope

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")
ROWS, COLUMNS, THREADS = (2, 96, 32) if SIMULATED else (4096, 8192, 256)


@cuda.jit(device=True)
def fold(shared, largest):
    """The largest of the threads' numbers in `shared`, or their sum, for every thread."""
    thread, width = cuda.threadIdx.x, THREADS // 2
    cuda.syncthreads()
    while width > 0:
        if thread < width:
            other = shared[thread + width]
            shared[thread] = max(shared[thread], other) if largest else shared[thread] + other
        cuda.syncthreads()
        width //= 2
    result = shared[0]
    cuda.syncthreads()
    return result


@cuda.jit
def softmax(x, out):
    shared = cuda.shared.array(THREADS, float32)
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    with kscope.region("maximum"):
        highest = float32(-math.inf)
        for i in range(thread, x.shape[1], THREADS):
            highest = max(highest, x[row, i])
        shared[thread] = highest
        highest = fold(shared, True)
    with kscope.region("sum"):
        total = float32(0)
        for i in range(thread, x.shape[1], THREADS):
            total += math.exp(x[row, i] - highest)
        shared[thread] = total
        total = fold(shared, False)
    with kscope.region("write"):
        for i in range(thread, x.shape[1], THREADS):
            out[row, i] = math.exp(x[row, i] - highest) / total


def run() -> int:
    """Launch once and check the result; returns the number of records."""
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    out = cuda.device_array((ROWS, COLUMNS), np.float32)
    softmax[ROWS, THREADS](cuda.to_device(x), out)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out.copy_to_host(), powers / powers.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-7)
    return ROWS * THREADS // 32 * 3  # every warp of every block records three regions


def main() -> None:
    if not cuda.is_available():
        print("no GPU here: NUMBA_ENABLE_CUDASIM=1 python examples/numba_softmax.py simulates one")
        return
    with kscope.profile("softmax.kscope") as prof:
        expected = run()
    show(prof.trace, expected, "softmax")


if __name__ == "__main__":
    main()
