"""A tiled matrix product without a GPU. The same kernel as *_gemm.py in real languages, with the same regions.

    python examples/sim_gemm.py

Each warp is a Python function that kscope_sim runs; it computes with numpy, and states how many cycles it takes.
Checks the result, writes gemm.kscope, and prints one line per region.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import kscope
from kscope_sim import Warp, launch

SIZE, TILE, DEPTH, WARPS = 256, 64, 16, 8
LATENCY, MULTIPLY = 600, 2 * TILE * TILE * DEPTH // (32 * WARPS)
"""Cycles to load a tile, and to multiply two tiles on an idle SM with 128 lanes."""

Floats = npt.NDArray[np.float32]


def gemm(warp: Warp, a: Floats, b: Floats, c: Floats) -> None:
    """Called once per warp, which computes eight rows of its block's tile."""
    first = warp.block[1] * TILE + warp.index * TILE // WARPS
    rows = slice(first, first + TILE // WARPS)
    columns = slice(warp.block[0] * TILE, (warp.block[0] + 1) * TILE)
    total = np.zeros((TILE // WARPS, TILE), np.float32)
    for k in range(0, SIZE, DEPTH):
        with kscope.region("load", value=k):
            warp.work(LATENCY + warp.random.randrange(LATENCY))
            warp.sync()
        with kscope.region("multiply"):
            warp.work(MULTIPLY)
            total += a[rows, k : k + DEPTH] @ b[k : k + DEPTH, columns]
            warp.sync()
    with kscope.region("store"):
        warp.work(LATENCY)
        c[rows, columns] = total


def run() -> int:
    """Launch once and check the result; returns the number of records."""
    numbers = np.random.default_rng(0)
    a, b = (numbers.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in range(2))
    c = np.empty_like(a)
    grid = (SIZE // TILE, SIZE // TILE)
    launch(gemm, grid=grid, block=32 * WARPS, args=(a, b, c))
    np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)
    # every warp of every block records the store, and two regions in each iteration
    return grid[0] * grid[1] * WARPS * (1 + 2 * SIZE // DEPTH)


def main() -> None:
    with kscope.profile("gemm.kscope") as prof:
        expected = run()
    assert len(prof.trace) == expected, f"{len(prof.trace)} records, expected {expected}"
    print(prof.trace.summary())


if __name__ == "__main__":
    main()
