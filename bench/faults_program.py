"""A process whose kernel hangs or dies: python faults_program.py LANGUAGE FAULT SEED [shm|keeper|auto].

In each block warp 0 fills 32 slots, one after the other, and three warps take them; before a slot it waits until the
one before was taken. The seed draws a block, a slot and one of the three warps. Faults there:

    arrive    the warp does not say that it has taken the slot: warp 0 waits for it at the next one
    signal    warp 0 does not announce the slot: the three wait for it
    trap      the warp traps, in `check`
    address   it reads from an invalid address, in `poke`, and waits for what it reads
    kill, crash, memory
              as signal; when the parent says so, the process is killed, dies by a segmentation fault, or ends because
              the host has no memory left

In Triton one program is the producer of the next one, because all warps of a program do the same.
"""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "frontends"), str(ROOT / "runtime")]
import kscope  # noqa: E402

BLOCKS, SLOTS, WARPS = 64, 32, 4
HOST = ("kill", "crash", "memory")
"""Deaths of the process, while its kernel hangs."""
HANGS = ("arrive", "signal", *HOST)
FAULTS = (*HANGS, "trap", "address")
LANGUAGES = ("triton", "gluon", "cupy", "cuda", "nvcc", "numba", "cute")
MODES = {"none": 0, "arrive": 1, "trap": 3, "address": 4}
_SIGNAL = 2


@dataclass(frozen=True)
class Place:
    """Where the fault is."""

    block: int
    slot: int
    warp: int


def place(seed: int) -> Place:
    """The place that a seed draws. Blocks are odd: in Triton these take slots."""
    drawn = random.Random(seed)
    return Place(2 * drawn.randrange(BLOCKS // 2) + 1, drawn.randrange(2, SLOTS - 2), drawn.randrange(1, WARPS))


SOURCE = r"""
#include <kscope.cuh>
extern "C" __global__ void pipeline(int* flags, int* done, int* out, int mode, int block, int slot, int which) {
  KSCOPE_KERNEL();
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  flags += blockIdx.x * 32;
  done += blockIdx.x * 32;
  bool here = blockIdx.x == block;
  if (warp == 0) {
    KSCOPE_ROLE("producer");
    for (int i = 0; i < 32; i++) {
      if (i) {
        KSCOPE_REGION_V("wait_empty", i);
        if (lane == 0) while (atomicAdd(done + i - 1, 0) < 3) {}
        __syncwarp();
      }
      KSCOPE_REGION_V("load", i);
      if (lane == 0 && !(here && mode == 2 && i == slot)) atomicExch(flags + i, 1);
      __syncwarp();
    }
    return;
  }
  KSCOPE_ROLE("consumer");
  bool culprit = here && warp == which;
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
    if (culprit && i == slot && mode == 3) {
      KSCOPE_REGION_V("check", i);
      asm volatile("trap;");
    }
    if (culprit && i == slot && mode == 4) {
      KSCOPE_REGION_OPEN_V("poke", i);
      __nanosleep(100);
      if (*(volatile int*)0x10 == 4711) out[0] = 1;
    }
    if (lane == 0 && !(culprit && i == slot && mode == 1)) atomicAdd(done + i, 1);
  }
}
"""


def on_cupy(mode: int, at: Place) -> None:
    import cupy

    kernel = cupy.RawKernel(SOURCE, "pipeline", options=("-I" + kscope.cuda_include(), "--std=c++17"))
    flags, done, out = (cupy.zeros(size, cupy.int32) for size in (BLOCKS * SLOTS, BLOCKS * SLOTS, BLOCKS * 128))
    numbers = [cupy.int32(number) for number in (mode, at.block, at.slot, at.warp)]
    kernel((BLOCKS,), (128,), (flags, done, out, *numbers))
    started()
    cupy.cuda.runtime.deviceSynchronize()


def on_cuda(mode: int, at: Place) -> None:
    import numpy as np

    from kscope_cuda.core.program import arm, compile, cuda_core

    device = cuda_core.Device()
    device.set_current()
    stream = device.create_stream()
    code = compile(SOURCE, cuda_core.ProgramOptions(std="c++17", arch=f"sm_{device.arch}"))
    arm(code)
    buffers = [device.allocate(4 * size, stream=stream) for size in (BLOCKS * SLOTS, BLOCKS * SLOTS, BLOCKS * 128)]
    for buffer in buffers:
        buffer.fill(0, stream=stream)
    handles = (int(buffer.handle) for buffer in buffers)
    numbers = [np.int32(number) for number in (mode, at.block, at.slot, at.warp)]
    config = cuda_core.LaunchConfig(grid=(BLOCKS,), block=(128,))
    cuda_core.launch(stream, config, code.get_kernel("pipeline"), *handles, *numbers)
    started()
    stream.sync()


def on_nvcc(mode: int, at: Place) -> None:
    """A cubin in which every region is stored when it is entered."""
    import numpy as np
    from cuda.bindings import driver

    def checked(answer: tuple[Any, ...]) -> Any:
        assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer[0]
        return answer[1] if len(answer) == 2 else None

    checked(driver.cuInit(0))
    device = checked(driver.cuDeviceGet(0))
    checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(device))))
    arch = [checked(driver.cuDeviceGetAttribute(
        getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{part}"), device
    )) for part in ("MAJOR", "MINOR")]  # fmt: skip
    cubin = _built("{}{}".format(*arch))
    module = checked(driver.cuModuleLoad(str(cubin).encode()))
    kscope.bind(module, cubin)
    buffers = [checked(driver.cuMemAlloc(4 * size)) for size in (BLOCKS * SLOTS, BLOCKS * SLOTS, BLOCKS * 128)]
    for buffer, size in zip(buffers, (BLOCKS * SLOTS, BLOCKS * SLOTS, BLOCKS * 128), strict=True):
        checked(driver.cuMemsetD32(buffer, 0, size))
    values = [np.array([int(one)], np.uint64) for one in buffers]
    values += [np.array([number], np.int32) for number in (mode, at.block, at.slot, at.warp)]
    addresses = np.array([value.ctypes.data for value in values], np.uint64)
    function = checked(driver.cuModuleGetFunction(module, b"pipeline"))
    checked(driver.cuLaunchKernel(function, BLOCKS, 1, 1, 128, 1, 1, 0, 0, addresses.ctypes.data, 0))
    started()
    checked(driver.cuCtxSynchronize())


def _built(arch: str) -> Path:
    """The kernel's cubin, built once."""
    from kscope_cuda import flags

    options = [*flags(open=True), f"-arch=sm_{arch}", "-std=c++17", "-cubin"]
    name = sha256("\0".join([SOURCE, *options]).encode()).hexdigest()[:16]
    made = Path(tempfile.gettempdir(), f"kscope-faults-{os.getuid()}", f"{name}.cubin")
    if not made.exists():
        made.parent.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=made.parent) as folder:
            Path(folder, "pipeline.cu").write_text(SOURCE)
            # relative names: the kernel's id depends on them, and other processes may build it at the same time
            subprocess.run(["nvcc", *options, "pipeline.cu", "-o", "part"], cwd=folder, check=True)
            Path(folder, "part").replace(made)
    return made


def _on_torch(name: str, mode: int, at: Place) -> None:
    import torch

    kernel = __import__(f"faults_{name}").pipeline
    buffers = (BLOCKS * SLOTS, BLOCKS * SLOTS, BLOCKS * 128)
    flags, done, out = (torch.zeros(size, device="cuda", dtype=torch.int32) for size in buffers)
    kernel[(BLOCKS,)](flags, done, out, mode, at.block, at.slot, num_warps=4)
    started()
    torch.cuda.synchronize()


def on_triton(mode: int, at: Place) -> None:
    _on_torch("triton", mode, at)


def on_gluon(mode: int, at: Place) -> None:
    _on_torch("gluon", mode, at)


def on_numba(mode: int, at: Place) -> None:
    import faults_numba
    from numba import cuda

    faults_numba.launch(mode, at.block, at.slot, at.warp)
    started()
    cuda.synchronize()


def on_cute(mode: int, at: Place) -> None:
    import faults_cute
    import torch

    faults_cute.launch(mode, at.block, at.slot, at.warp)
    started()
    torch.cuda.synchronize()


def on_simulator(mode: int, at: Place) -> None:
    import kscope_sim

    def pipeline(warp: kscope_sim.Warp) -> None:
        here = warp.block[0] == at.block
        culprit = here and warp.index == at.warp
        kscope.role("consumer" if warp.index else "producer")
        for i in range(SLOTS):
            if not warp.index:
                if i:
                    with kscope.region("wait_empty", value=i):
                        warp.wait(("taken", i - 1), arrivals=3)
                with kscope.region("load", value=i):
                    if not (here and mode == _SIGNAL and i == at.slot):
                        warp.arrive(("full", i))
                continue
            with kscope.region("wait_full", value=i):
                warp.wait(("full", i))
            with kscope.region("multiply", value=i):
                warp.work(100)
            if culprit and i == at.slot and mode >= MODES["trap"]:
                with kscope.region("check" if mode == MODES["trap"] else "poke", value=i):
                    raise RuntimeError("the kernel trapped") if mode == MODES["trap"] else IndexError("illegal address")
            if not (culprit and i == at.slot and mode == MODES["arrive"]):
                warp.arrive(("taken", i))

    started()
    kscope_sim.launch(pipeline, grid=BLOCKS, block=128, hangs=True)


RUN: dict[str, Callable[[int, Place], Any]] = {
    "triton": on_triton, "gluon": on_gluon, "cupy": on_cupy, "cuda": on_cuda, "nvcc": on_nvcc,
    "numba": on_numba, "cute": on_cute, "simulator": on_simulator,
}  # fmt: skip


def started() -> None:
    """The kernel is launched."""
    print("launched", flush=True)


def die_when_told(fault: str) -> None:
    """Die as the fault says, when the parent says so."""
    sys.stdin.readline()
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "crash":
        ctypes.string_at(0)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.RLIM_INFINITY))  # less than there is: no more is given
    kept = []
    try:
        while True:
            kept.append(bytes(1 << 30))
    except MemoryError:
        os._exit(1)


def main(language: str, fault: str, seed: str, survive: Any = "shm") -> None:
    if fault in HOST:
        threading.Thread(target=die_when_told, args=(fault,), daemon=True).start()
    with kscope.profile(survive=survive, pool=8 << 20):
        RUN[language](MODES.get(fault, _SIGNAL), place(int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
