"""`kscope demo --on cuda.core`: a tiled matrix product."""

from __future__ import annotations

import numpy as np

from .. import demo_kernel
from .program import arm, compile, cuda_core

TITLE = f"a CUDA C++ matrix product with cuda.core on this GPU: {demo_kernel.TITLE}"


def obstacle() -> str:
    """Empty: the caller has found a GPU."""
    return ""


def run() -> None:
    """Launch the kernel once."""
    device = cuda_core.Device()
    device.set_current()
    stream = device.create_stream()
    code = compile(demo_kernel.SOURCE, cuda_core.ProgramOptions(std="c++17", arch=f"sm_{device.arch}"))
    kernel = code.get_kernel("product")
    arm(code)
    blocks, size = demo_kernel.SIZE // demo_kernel.TILE, demo_kernel.SIZE
    a, b, c = (device.allocate(4 * size * size, stream=stream) for _ in range(3))
    config = cuda_core.LaunchConfig(grid=(blocks, blocks), block=(demo_kernel.TILE, demo_kernel.TILE))
    cuda_core.launch(stream, config, kernel, *(int(buffer.handle) for buffer in (a, b, c)), np.int32(size))
    stream.sync()
