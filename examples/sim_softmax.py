"""A softmax without a GPU: three passes over a row. The same kernel as *_softmax.py in real languages, same regions.

    python examples/sim_softmax.py

Each warp is a Python function that kscope_sim runs; it computes with numpy, and states how many cycles it takes.
Checks the result, writes softmax.kscope, and prints one line per region.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import kscope
from kscope_sim import Warp, launch

ROWS, COLUMNS, THREADS = 64, 8192, 256
READ, EXPONENTIAL = 18, 9
"""Cycles that a warp takes for 32 numbers."""

Floats = npt.NDArray[np.float32]


def across(warp: Warp, what: str, number: np.float32) -> Floats:
    """Gather the numbers of all warps of the block; every warp gets all."""
    warp.shared[what, warp.index] = number
    warp.sync()
    return np.array([warp.shared[what, index] for index in range(THREADS // 32)])


def softmax(warp: Warp, x: Floats, out: Floats) -> None:
    """Called once per warp."""
    columns = np.arange(COLUMNS).reshape(-1, THREADS // 32, 32)[:, warp.index].ravel()
    row, steps = warp.block[0], COLUMNS // THREADS
    with kscope.region("maximum"):
        warp.work(steps * READ)
        highest = across(warp, "maximum", x[row, columns].max()).max()
    with kscope.region("sum"):
        warp.work(steps * (READ + EXPONENTIAL))
        powers = np.exp(x[row, columns] - highest)
        total = across(warp, "sum", powers.sum()).sum()
    with kscope.region("write"):
        warp.work(steps * (2 * READ + EXPONENTIAL))
        out[row, columns] = powers / total


def run() -> int:
    """Launch once and check the result; returns the number of records."""
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    out = np.empty_like(x)
    launch(softmax, grid=ROWS, block=THREADS, args=(x, out))
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-7)
    return ROWS * THREADS // 32 * 3  # every warp of every block records three regions


def main() -> None:
    with kscope.profile("softmax.kscope") as prof:
        expected = run()
    assert len(prof.trace) == expected, f"{len(prof.trace)} records, expected {expected}"
    print(prof.trace.summary())


if __name__ == "__main__":
    main()
