"""Kernels that read clocks and positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

import kscope

HELPERS = r"""
#include <kscope.cuh>
extern "C" __global__ void places(int* out) {
  const int size = blockDim.x * blockDim.y * blockDim.z;
  const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int* mine = out + 4 * (kscope::block_id() * size + thread);
  mine[0] = kscope::warp_id();
  mine[1] = kscope::lane_id();
  mine[2] = kscope::block_id();
  mine[3] = kscope::smid();
}
"""


@triton.jit
def reads_helpers(out, n):
    at = out + 5 * kscope.block_id()
    began, low = kscope.clock64(), kscope.clock()
    total = n * 0
    with kscope.region("step", value=kscope.warp_id()):
        for k in range(n):
            total += tl.load(at).to(tl.int32) + k
    took, passed = kscope.clock64() - began, kscope.clock() - low
    tl.store(at, kscope.block_id().to(tl.int64) + (total == 1) * 0)
    tl.store(at + 1, took)
    tl.store(at + 2, kscope.globaltimer())
    tl.store(at + 3, kscope.smid().to(tl.int64))
    tl.store(at + 4, passed.to(tl.int64))


def helped(blocks: int, threads: int) -> Any:
    """(threads of the grid, 4): block, warp, lane, and cycles of a loop, from a plain Numba kernel."""
    from numba import cuda

    import kscope_numba

    kscope_numba.teach()

    @cuda.jit
    def kernel(out, n):
        began = kscope.clock64()
        at = cuda.grid(1)
        for k in range(n):
            out[at, 3] += k
        out[at, 0] = kscope.block_id()
        out[at, 1] = kscope.warp_id()
        out[at, 2] = kscope.lane_id()
        out[at, 3] = kscope.clock64() - began

    out = cuda.to_device(np.zeros((blocks * threads, 4), np.int64))
    kernel[blocks, threads](out, 100)
    return out.copy_to_host()
