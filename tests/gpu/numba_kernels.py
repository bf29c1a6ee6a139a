"""Numba kernels of the device tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda

import kscope
from kscope_numba import hook_points, teach

teach()  # these tests run without installing kscope
hook_points.module("dispatcher").config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # of small grids

RECORDS = 6
"""Records of four(), per warp."""
LOAD = kscope.scope("load")

CPP = r"""
#include <kscope.cuh>
extern "C" __device__ int scaled(float* result, float x) {
  KSCOPE_REGION("in c++");
  *result = x * 2;
  return 0;
}
"""


def ints(count: int) -> Any:
    """Zeros on the device."""
    return cuda.to_device(np.zeros(count, np.int32))


@cuda.jit(device=True)
def add_one(out, i):
    with kscope.region("helper"):
        cuda.atomic.add(out, i, 1)


@cuda.jit
def four(out):
    """Every block's first thread adds four to the block's number."""
    block = cuda.blockIdx.x + cuda.gridDim.x * (cuda.blockIdx.y + cuda.gridDim.y * cuda.blockIdx.z)
    linear = cuda.threadIdx.x + cuda.blockDim.x * (cuda.threadIdx.y + cuda.blockDim.y * cuda.threadIdx.z)
    with kscope.region("outer", value=block):
        for k in range(4):
            with kscope.region("step", value=k):
                if linear == 0:
                    cuda.atomic.add(out, block, 1)
    kscope.instant("end", value=linear)


@cuda.jit
def leaves(out, limit):
    """Blocks from `limit` on return from inside of two regions."""
    with kscope.region("outer"), kscope.region("inner"):
        if cuda.blockIdx.x >= limit:
            return
        add_one(out, cuda.blockIdx.x)
    with kscope.region("rest"):
        cuda.syncthreads()


@cuda.jit
def raises(out, step):
    """A loop over range() with a step that may be zero, which raises; and an assert."""
    with kscope.region("outer"):
        with kscope.region("loop"):
            for i in range(0, 4, step):
                with kscope.region("step", value=i):
                    out[cuda.blockIdx.x] = i
        assert step > 1


@cuda.jit
def explicit(out, n):
    LOAD.enter(n)
    for k in range(n):
        out[cuda.blockIdx.x] = k
    LOAD.exit()


@cuda.jit
def summed(x, out):
    """Sums a row per block in shared memory, with regions around and between barriers."""
    partial = cuda.shared.array(128, np.float32)
    thread = cuda.threadIdx.x
    with kscope.region("read"):
        partial[thread] = x[cuda.blockIdx.x, thread]
        cuda.syncthreads()
    width = 64
    while width > 0:
        with kscope.region("level", value=width):
            if thread < width:
                partial[thread] += partial[thread + width]
            cuda.syncthreads()
        width //= 2
    if thread == 0:
        with kscope.region("write"):
            out[cuda.blockIdx.x] = partial[0]


@cuda.jit
def together(out, rounds):
    """A grid that waits for itself: cooperative."""
    grid = cuda.cg.this_grid()
    for k in range(rounds):
        with kscope.region("round", value=k):
            if cuda.threadIdx.x == 0:
                cuda.atomic.add(out, 0, 1)
            grid.sync()


def linked(folder: Path, lto: bool) -> Any:
    """A kernel that links CUDA C++ with a region."""
    path = folder / "scaled.cu"
    path.write_text(CPP)
    scaled = cuda.declare_device("scaled", "float32(float32)")

    def kernel(x):
        with kscope.region("python"):
            x[cuda.grid(1)] = scaled(x[cuda.grid(1)])

    return cuda.jit(kernel, link=[str(path)], lto=lto)
