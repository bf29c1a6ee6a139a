"""The kernel of `kscope demo` where cuda.core has a GPU: a tiled product of matrices."""

from __future__ import annotations

import numpy as np

from .. import product
from . import arm, compile, cuda_core

TITLE = f"a CUDA C++ product with cuda.core on this GPU: {product.TITLE}"


def obstacle() -> str:
    """Why it cannot run here, "" where it can: whoever asks has found a GPU."""
    return ""


def run() -> None:
    """Launch the kernel once."""
    device = cuda_core.Device()
    device.set_current()
    stream = device.create_stream()
    code = compile(product.SOURCE, cuda_core.ProgramOptions(std="c++17", arch=f"sm_{device.arch}"))
    kernel = code.get_kernel("product")
    arm(code)
    blocks, size = product.SIZE // product.TILE, product.SIZE
    a, b, c = (device.allocate(4 * size * size, stream=stream) for _ in range(3))
    config = cuda_core.LaunchConfig(grid=(blocks, blocks), block=(product.TILE, product.TILE))
    cuda_core.launch(stream, config, kernel, *(int(buffer.handle) for buffer in (a, b, c)), np.int32(size))
    stream.sync()
