"""Heat in a plate, step by step, in Numba: what do blocks at the edge do, and how even is the work?

    python examples/numba_stencil.py

On a GPU: 20 steps on a plate of 2048 x 2048, checked against numpy, written to stencil.kscope, and one line per region
printed. With NUMBA_ENABLE_CUDASIM=1 the same kernel runs on the CPU, on a small plate. Without either: exits.
"""

from __future__ import annotations

import os

import numpy as np
from numba import cuda, float32

import kscope

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")
TILE = 4 if SIMULATED else 16
WIDE = TILE + 2
SIZE = 8 if SIMULATED else 2048
STEPS = 2 if SIMULATED else 20
RATE = 0.2
HALO = kscope.scope("halo")


@cuda.jit
def step(before, after, hot):
    tile = cuda.shared.array((WIDE, WIDE), float32)
    x, y = cuda.threadIdx.x + 1, cuda.threadIdx.y + 1
    column, row = cuda.grid(2)
    last = before.shape[0] - 1
    with kscope.region("load"):
        tile[y, x] = before[row, column]
        with HALO:
            if y == 1:
                tile[0, x] = before[max(row - 1, 0), column]
            if y == TILE:
                tile[TILE + 1, x] = before[min(row + 1, last), column]
            if x == 1:
                tile[y, 0] = before[row, max(column - 1, 0)]
            if x == TILE:
                tile[y, TILE + 1] = before[row, min(column + 1, last)]
        cuda.syncthreads()
    if row == 0:
        with kscope.region("edge", value=column):
            after[row, column] = hot
        return
    with kscope.region("update"):
        around = tile[y - 1, x] + tile[y + 1, x] + tile[y, x - 1] + tile[y, x + 1]
        after[row, column] = tile[y, x] + float32(RATE) * (around - float32(4) * tile[y, x])
    kscope.counter("heat", after[row, column])


def expected_of(plate: np.ndarray, hot: float) -> np.ndarray:
    """The same steps in numpy."""
    for _ in range(STEPS):
        wide = np.pad(plate, 1, mode="edge")
        around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
        plate = plate + np.float32(RATE) * (around - np.float32(4) * plate)
        plate[0] = hot
    return plate


def main() -> None:
    if not cuda.is_available():
        print("no GPU here: NUMBA_ENABLE_CUDASIM=1 python examples/numba_stencil.py simulates one")
        return
    plate = np.random.default_rng(0).random((SIZE, SIZE), dtype=np.float32)
    plates = [cuda.to_device(plate), cuda.to_device(plate)]
    grid, block = (SIZE // TILE, SIZE // TILE), (TILE, TILE)
    with kscope.profile("stencil.kscope", block=range(0, grid[0] * grid[1], 7)) as prof:
        for _ in range(STEPS):
            step[grid, block](plates[0], plates[1], np.float32(100))
            plates.reverse()
    np.testing.assert_allclose(plates[0].copy_to_host(), expected_of(plate, 100), rtol=1e-4, atol=1e-4)
    counts = dict(zip(prof.trace.region_names(), np.bincount(prof.trace.region), strict=False))
    warps = len(range(0, grid[0] * grid[1], 7)) * -(-TILE * TILE // 32) * STEPS  # every seventh block records
    assert counts["load"] == counts["halo"] == warps, counts
    print(prof.trace.summary())
    print("stencil.kscope: kscope export stencil.kscope -o stencil.pftrace, then open it in ui.perfetto.dev")


if __name__ == "__main__":
    main()
