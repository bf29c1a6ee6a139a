"""One GPU and NVIDIA's compilers, as the sections of bench/ use them."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kscope.analysis.trust.perturbation import Build, build
from kscope.machine_code import tools
from kscope.machine_code.disassembly import Function, functions

KEPT = Path(__file__).resolve().parents[1] / ".cache" / "bench"
"""Compiled code, shared by sections and kept for later runs."""
MEMORY_BYTES = 1 << 30
"""Size of the buffer that kernels get: peers write records to it, and loads read from it."""


def nvcc(source: Path, out: Path, arch: str, *options: str) -> Path:
    """Compile the source to the type given by the suffix of `out`. Raises RuntimeError with the compiler's error."""
    folders = [Path(option[2:]) for option in options if option.startswith("-I")]
    headers = sorted(path for folder in folders for path in folder.glob("*.cuh"))
    given = [source.read_bytes(), *(path.read_bytes() for path in headers)]
    command = [tools.find("nvcc"), "-O3", "-std=c++17", f"-arch={arch}", *options, f"-{out.suffix[1:]}"]
    return _made(command, source, out, given)


def ptxas(text: str, out: Path, arch: str) -> Path:
    """PTX as a cubin."""
    source = out.with_suffix(".lowered.ptx")
    source.write_text(text)
    return _made([tools.find("ptxas"), f"-arch={arch}"], source, out, [text.encode()])


def _made(command: list[str], source: Path, out: Path, given: list[bytes]) -> Path:
    """The command's output for the source and the headers among the arguments; cached per version of the tool."""
    options = [option for option in command[1:] if not option.startswith("-I")]
    digest = hashlib.sha256(repr([_version(command[0]), *options]).encode())
    for one in given:
        digest.update(hashlib.sha256(one).digest())
    kept = KEPT / f"{digest.hexdigest()[:32]}{out.suffix}"
    if not kept.exists():
        done = subprocess.run([*command, str(source), "-o", str(out)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
        KEPT.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_suffix(f".{os.getpid()}-{threading.get_ident()}")  # other threads may compile the same
        shutil.copyfile(out, unfinished)
        unfinished.replace(kept)
    shutil.copyfile(kept, out)
    return out


@cache
def _version(tool: str) -> str:
    return subprocess.run([tool, "--version"], check=True, capture_output=True, text=True).stdout


def code(cubin: Path) -> dict[str, Function]:
    """Machine code by kernel."""
    return {one.name: one for one in functions(tools.disassembly(cubin))}


def resources(cubin: Path, kernel: str, threads: int, dynamic_shared: int = 0) -> Build:
    """Registers, spills, occupancy of a kernel."""
    return build(tools.resources(cubin), tools.disassembly(cubin), kernel, threads, dynamic_shared)


class Device:
    """The first GPU, with its primary context made current. Raises RuntimeError if the driver reports an error."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.driver = driver
        self.check(driver.cuInit(0))
        device = self.check(driver.cuDeviceGet(0))
        self.check(driver.cuCtxSetCurrent(self.check(driver.cuDevicePrimaryCtxRetain(device))))
        self.name = self.check(driver.cuDeviceGetName(128, device)).split(b"\0")[0].decode()
        self.sms = int(self.check(driver.cuDeviceGetAttribute(
            driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)))  # fmt: skip
        self.memory = self.allocate(MEMORY_BYTES)
        self._events = [self.check(driver.cuEventCreate(0)) for _ in range(2)]

    @staticmethod
    def check(result: tuple[Any, ...]) -> Any:
        if int(result[0]) != 0:
            raise RuntimeError(f"driver error {result[0]}")
        return result[1] if len(result) > 1 else None

    def allocate(self, size: int) -> int:
        """Cleared device memory."""
        address = int(self.check(self.driver.cuMemAlloc(size)))
        self.check(self.driver.cuMemsetD8(address, 0, size))
        return address

    def read(self, address: int, array: np.ndarray) -> np.ndarray:
        self.check(self.driver.cuMemcpyDtoH(array.ctypes.data, address, array.nbytes))
        return array

    def load(self, cubin: Path) -> Any:
        return self.check(self.driver.cuModuleLoadData(cubin.read_bytes()))

    def function(self, module: Any, kernel: str) -> Any:
        return self.check(self.driver.cuModuleGetFunction(module, kernel.encode()))

    def launch(self, function: Any, grid: int, block: int, *arguments: int, shared: int = 0) -> None:
        """Integers become 32-bit parameters if they fit, else 64-bit ones; addresses never fit 32 bits."""
        values = [ctypes.c_int32(a) if abs(a) < 1 << 31 else ctypes.c_uint64(a) for a in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self.check(
            self.driver.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, 0, ctypes.addressof(pointers), 0)
        )

    def fits(self, function: Any, blocks: int, threads: int) -> bool:
        """True if an SM holds this many blocks at once, without dynamic shared memory."""
        most = self.check(self.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, 0))
        return int(most) >= blocks

    def synchronize(self) -> None:
        self.check(self.driver.cuCtxSynchronize())

    def begin(self) -> None:
        self.check(self.driver.cuEventRecord(self._events[0], 0))

    def elapsed_us(self) -> float:
        """Microseconds on the stream since begin()."""
        self.check(self.driver.cuEventRecord(self._events[1], 0))
        self.check(self.driver.cuEventSynchronize(self._events[1]))
        return float(self.check(self.driver.cuEventElapsedTime(*self._events))) * 1000
