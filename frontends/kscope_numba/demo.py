"""The kernel of `kscope demo --on numba`: a tiled matrix multiplication."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

import kscope

from .hook_points import SIMULATED, cuda

TILE, SIZE = (4, 8) if SIMULATED else (16, 512)
TITLE = f"a Numba product of {SIZE} x {SIZE} matrices {'in its simulator' if SIMULATED else 'on this GPU'}"
float32: Any = import_module("numba").float32


@cuda.jit  # type: ignore[untyped-decorator,unused-ignore]  # Numba has no types
def product(a: Any, b: Any, c: Any) -> None:
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


def obstacle() -> str:
    """Reason why the kernel cannot run here; "" if it can."""
    return "" if cuda.is_available() else "no NVIDIA GPU that Numba can use"


def run() -> None:
    """Launch the kernel once."""
    a, b, c = (cuda.to_device(np.ones((SIZE, SIZE), np.float32)) for _ in range(3))
    product[(SIZE // TILE, SIZE // TILE), (TILE, TILE)](a, b, c)
    cuda.synchronize()
