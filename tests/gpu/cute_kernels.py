"""Kernels in CuTe DSL for the device tests."""

from __future__ import annotations

import cutlass
from cuda.bindings import driver
from cutlass import cute

import kscope

BLOCKS, THREADS = 8, 128


@cute.kernel
def count_up(x: cute.Tensor, n: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * THREADS + thread
    with kscope.region("all"):
        for k in range(n):
            with kscope.region("step", value=k):
                x[at] = x[at] + 1.0


@cute.jit
def launch(x: cute.Tensor, n: cutlass.Int32, stream: driver.CUstream):
    count_up(x, n).launch(grid=[BLOCKS, 1, 1], block=[THREADS, 1, 1], stream=stream)


@cute.kernel
def outside(x: cute.Tensor, far: cutlass.Int32):
    """Writes where nothing is: the context breaks."""
    thread, _, _ = cute.arch.thread_idx()
    with kscope.region("before"):
        x[thread] = 1.0
    with kscope.region("outside"):
        x[thread + far] = 1.0


@cute.jit
def launch_outside(x: cute.Tensor, far: cutlass.Int32, stream: driver.CUstream):
    outside(x, far).launch(grid=[BLOCKS, 1, 1], block=[THREADS, 1, 1], stream=stream)
