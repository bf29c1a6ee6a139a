"""`kscope demo --on cupy`: a tiled matrix product."""

from __future__ import annotations

import numpy as np

from kscope import cuda_include

from .. import demo_kernel
from .hook_points import cupy

TITLE = f"a CUDA C++ matrix product in CuPy on this GPU: {demo_kernel.TITLE}"


def obstacle() -> str:
    """Reason why the demo cannot run; empty if it can."""
    return "" if cupy.is_available() else "no NVIDIA GPU that CuPy can use"


def run() -> None:
    """Launch the kernel once."""
    blocks, size = demo_kernel.SIZE // demo_kernel.TILE, demo_kernel.SIZE
    a, b, c = (cupy.ones((size, size), np.float32) for _ in range(3))
    kernel = cupy.RawKernel(demo_kernel.SOURCE, "product", options=(f"-I{cuda_include()}",))
    kernel((blocks, blocks), (demo_kernel.TILE, demo_kernel.TILE), (a, b, c, np.int32(size)))
    cupy.cuda.Device().synchronize()
