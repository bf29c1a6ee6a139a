"""TMA in CUDA C++: one thread requests chunks from the copy engine, eight warps multiply. Which of them wait?

    python examples/cuda_tma.py

On a GPU (sm_90 or later): builds cuda_tma.cu with nvcc, multiplies two vectors of 16 M numbers with it, checks the
result against numpy, writes tma.kscope, and prints one line per region: "room" is the
producing thread's wait, "wait" that of the others. Without one: builds it for sm_90 and lists its contents.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from cuda_library import main

import kscope
import kscope_cuda

COUNT, CHUNK, BLOCKS, WARPS = 1 << 24, 1024, 264, 8
SOURCE = Path(__file__).with_suffix(".cu")


def record(path: Path) -> None:
    """Arm the library once: every later session records it."""
    library = ctypes.CDLL(str(path))
    kscope_cuda.arm(library)
    left, right = np.random.default_rng(0).random((2, COUNT), dtype=np.float32)
    pointers = [vector.ctypes.data_as(ctypes.c_void_p) for vector in (left, right)]
    result = ctypes.c_float()
    with kscope.profile("tma.kscope") as prof:
        assert library.scalar_product(*pointers, COUNT, ctypes.byref(result)) == 0
    np.testing.assert_allclose(result.value, np.dot(left.astype(np.float64), right), rtol=1e-4)
    # for each chunk the producer and every multiplying warp record two regions; the latter also record the final sum
    expected = 2 * (1 + WARPS) * COUNT // CHUNK + WARPS * BLOCKS
    assert len(prof.trace) == expected, f"{len(prof.trace)} records, expected {expected}"
    print(prof.trace.summary())


if __name__ == "__main__":
    main(SOURCE, record)
