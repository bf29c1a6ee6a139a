"""Kernels of which one block waits for ever, or fails: python core_kernels.py WHAT."""

from __future__ import annotations

import sys
from pathlib import Path

import triton
import triton.language as tl

import kscope

BLOCKS, CULPRIT = 64, 5

SOURCE = r"""
extern "C" __global__ void waits(int* flags, int* out) {
  out[blockIdx.x] = 1;
  if (blockIdx.x == 5) {
    while (atomicAdd(flags, 0) == 0) {}  // cupy waits here
  }
  out[blockIdx.x] = 2;
}
"""
MARKED = r"""
#include <kscope.cuh>
extern "C" __global__ void waits(int* flags, int* out) {
  KSCOPE_KERNEL();
  out[blockIdx.x] = 1;
  if (blockIdx.x == 5) {
    KSCOPE_REGION("wait_full");
    while (atomicAdd(flags, 0) == 0) {}
  }
  out[blockIdx.x] = 2;
}
"""


MBARRIER = r"""
extern "C" __global__ void waits(int* flags, int* out) {
  __shared__ alignas(8) unsigned long long full;
  unsigned at = (unsigned)__cvta_generic_to_shared(&full);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
  __syncthreads();
  unsigned done = blockIdx.x != 5;
  while (!done)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done) : "r"(at) : "memory");
  out[blockIdx.x] = 2;
}
"""


@triton.jit
def plain(flags, out):
    block = tl.program_id(0)
    tl.store(out + block, block)
    if block == 5:
        while tl.atomic_add(flags, 0) == 0:  # triton waits here
            pass
    tl.store(out + block, 2)


@triton.jit
def marked(flags, out):
    block = tl.program_id(0)
    tl.store(out + block, block)
    if block == 5:
        with kscope.region("wait_full"):
            while tl.atomic_add(flags, 0) == 0:
                pass
    tl.store(out + block, 2)


@triton.jit
def fails(flags, out):
    block = tl.program_id(0)
    tl.store(out + block, block)
    if block == 5:
        tl.store(out + tl.load(out + (1 << 40) + tl.arange(0, 128)), 1)  # triton fails here


@triton.jit
def fills(flags, out):
    while tl.atomic_add(flags, 0) == 0:  # all blocks wait here
        pass
    tl.store(out, 1)


def run(what: str) -> None:
    """Launch, say so by a file `hangs`, and wait."""
    if what.startswith("cupy"):
        import cupy

        options = ("-lineinfo", "-I" + kscope.cuda_include(), "--std=c++17")
        source = {"cupy_marked": MARKED, "cupy_barrier": MBARRIER}.get(what, SOURCE)
        kernel = cupy.RawKernel(source, "waits", options=options)
        flags, out = cupy.zeros(1, cupy.int32), cupy.zeros(BLOCKS, cupy.int32)
        kernel((BLOCKS,), (128,), (flags, out))
        wait = cupy.cuda.runtime.deviceSynchronize
    else:
        import torch

        flags, out = (torch.zeros(size, device="cuda", dtype=torch.int32) for size in (1, 1 << 16))
        everywhere = 4 * torch.cuda.get_device_properties(0).multi_processor_count
        grid, warps = (everywhere, 16) if what == "fills" else (BLOCKS, 4)
        globals()[what][(grid,)](flags, out, num_warps=warps)
        wait = torch.cuda.synchronize
    Path("hangs").touch()
    wait()


if __name__ == "__main__":
    run(sys.argv[1])
