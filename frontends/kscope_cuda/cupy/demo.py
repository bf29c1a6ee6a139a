"""The kernel of `kscope demo` where CuPy has a GPU: a tiled product of matrices."""

from __future__ import annotations

import numpy as np

from kscope import cuda_include

from .. import product
from .hook_points import cupy

TITLE = f"a CUDA C++ product in CuPy on this GPU: {product.TITLE}"


def obstacle() -> str:
    """Why it cannot run here, "" where it can."""
    return "" if cupy.is_available() else "no NVIDIA GPU that CuPy can use"


def run() -> None:
    """Launch the kernel once."""
    blocks, size = product.SIZE // product.TILE, product.SIZE
    a, b, c = (cupy.ones((size, size), np.float32) for _ in range(3))
    kernel = cupy.RawKernel(product.SOURCE, "product", options=(f"-I{cuda_include()}",))
    kernel((blocks, blocks), (product.TILE, product.TILE), (a, b, c, np.int32(size)))
    cupy.cuda.Device().synchronize()
