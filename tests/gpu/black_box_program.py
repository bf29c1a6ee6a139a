"""A program whose kernel hangs or dies: python black_box_program.py LANGUAGE FAULT [shm|keeper].

Block 0 fills 32 slots, one after the other; each warp of the other blocks takes all of them and counts itself. Faults:

    arrive    warp 1 of block 22 does not count itself at slot 28: block 0 waits for it before slot 29
    signal    slot 28 is never announced: every other block waits for it
    trap      warp 1 of block 22 traps at slot 22, in `check`
    address   the same warp reads from an invalid address, in `poke`, and waits for what it reads
    kill, crash   as signal, and the program is killed, or dies by a segmentation fault
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import kscope

BLOCKS, SLOTS = 64, 32
HANGS = ("arrive", "signal", "kill", "crash")
FAULTS = (*HANGS, "trap", "address")
LANGUAGES = ("triton", "cupy", "cuda", "numba")
MODES = {"arrive": 1, "signal": 2, "kill": 2, "crash": 2, "trap": 3, "address": 4}

SOURCE = r"""
#include <kscope.cuh>
extern "C" __global__ void pipeline(int* flags, int* done, int* out, int mode) {
  KSCOPE_KERNEL();
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (blockIdx.x == 0) {
    if (warp) return;
    for (int i = 0; i < 32; i++) {
      if (i) {
        KSCOPE_REGION_V("wait_empty", i);
        if (lane == 0) while (atomicAdd(done + i - 1, 0) < 4 * (gridDim.x - 1)) {}
        __syncwarp();
      }
      KSCOPE_REGION_V("load", i);
      if (lane == 0 && !(mode == 2 && i == 28)) atomicExch(flags + i, 1);
      __syncwarp();
    }
    return;
  }
  bool culprit = blockIdx.x == 22 && warp == 1;
  for (int i = 0; i < 32; i++) {
    {
      KSCOPE_REGION_V("wait_full", i);
      if (lane == 0) while (atomicAdd(flags + i, 0) == 0) {}
      __syncwarp();
    }
    {
      KSCOPE_REGION_V("multiply", i);
      out[blockIdx.x * blockDim.x + threadIdx.x] += i;
    }
    if (culprit && i == 22 && mode == 3) {
      KSCOPE_REGION_V("check", i);
      asm volatile("trap;");
    }
    if (culprit && i == 22 && mode == 4) {
      KSCOPE_REGION_V("poke", i);
      __nanosleep(100);
      if (*(volatile int*)0x10 == 4711) out[0] = 1;
    }
    if (lane == 0 && !(culprit && i == 28 && mode == 1)) atomicAdd(done + i, 1);
  }
}
"""


def on_cupy(mode: int) -> None:
    import cupy

    kernel = cupy.RawKernel(SOURCE, "pipeline", options=("-I" + kscope.cuda_include(), "--std=c++17"))
    flags, done, out = (cupy.zeros(size, cupy.int32) for size in (SLOTS, SLOTS, BLOCKS * 128))
    kernel((BLOCKS,), (128,), (flags, done, out, cupy.int32(mode)))
    started()
    cupy.cuda.runtime.deviceSynchronize()


def on_cuda(mode: int) -> None:
    import numpy as np

    from kscope_cuda.core.program import arm, compile, cuda_core

    device = cuda_core.Device()
    device.set_current()
    stream = device.create_stream()
    code = compile(SOURCE, cuda_core.ProgramOptions(std="c++17", arch=f"sm_{device.arch}"))
    arm(code)
    buffers = [device.allocate(4 * size, stream=stream) for size in (SLOTS, SLOTS, BLOCKS * 128)]
    for buffer in buffers:
        buffer.fill(0, stream=stream)
    config = cuda_core.LaunchConfig(grid=(BLOCKS,), block=(128,))
    handles = (int(buffer.handle) for buffer in buffers)
    cuda_core.launch(stream, config, code.get_kernel("pipeline"), *handles, np.int32(mode))
    started()
    stream.sync()


def on_triton(mode: int) -> None:
    import black_box_triton
    import torch

    flags, done, out = (torch.zeros(size, device="cuda", dtype=torch.int32) for size in (SLOTS, SLOTS, BLOCKS * 128))
    black_box_triton.pipeline[(BLOCKS,)](flags, done, out, mode, BLOCKS, num_warps=4)
    started()
    torch.cuda.synchronize()


def on_numba(mode: int) -> None:
    import black_box_numba
    from numba import cuda

    black_box_numba.launch(mode, BLOCKS, SLOTS)
    started()
    cuda.synchronize()


RUN: dict[str, Callable[[int], Any]] = {"cupy": on_cupy, "cuda": on_cuda, "triton": on_triton, "numba": on_numba}


def started() -> None:
    """The kernel is launched."""
    print("launched", flush=True)


def end_later(fault: str) -> None:
    """Die while the kernel hangs."""
    time.sleep(12.0)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)


def main(language: str, fault: str, survive: Any = "shm") -> None:
    if fault in ("kill", "crash"):
        threading.Thread(target=end_later, args=(fault,), daemon=True).start()
    with kscope.profile(survive=survive, pool=8 << 20):
        RUN[language](MODES[fault])


if __name__ == "__main__":
    main(*sys.argv[1:])
