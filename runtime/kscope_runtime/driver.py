"""The CUDA driver: one checked call per method, integers and numpy arrays in, integers out. All driver calls of kscope
are here and in device_memory.py, through cuda-bindings (or cuda-python before 12.6).
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol
from uuid import UUID

import numpy as np

from kscope import native
from kscope.errors import DriverError, MissingError, UnsupportedError

from . import device_memory
from .device_memory import Allocation
from .entry_points import EntryPoints, entry_points
from .memory_ranges import Bytes, Ranges, read_each
from .primary_contexts import PrimaryContexts

_BROKEN = "an earlier kernel broke the context: run the program without kscope under compute-sanitizer"
_ADVICE = {
    "CUDA_ERROR_OUT_OF_MEMORY": "the pool is taken from the device's free memory: pass a smaller profile(pool=bytes)",
    "CUDA_ERROR_ILLEGAL_ADDRESS": _BROKEN,
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": _BROKEN,
    "CUDA_ERROR_MISALIGNED_ADDRESS": _BROKEN,
    "CUDA_ERROR_LAUNCH_FAILED": _BROKEN,
    "CUDA_ERROR_ASSERT": "an assertion in a kernel fired and broke the context",
    "CUDA_ERROR_NOT_INITIALIZED": "the process was forked, or is about to end",
}
_OF_A_HANDLE = {"cuLibraryGetModule", "cuKernelGetLibrary", "cuFuncGetModule", "cuModuleGetGlobal"}
"""Calls on a handle that the user may have passed."""
_INVALID = "CUDA_ERROR_INVALID_HANDLE"
_GIVEN = (
    "it was unloaded, belongs to another context, or is a handle of another kind: a number is interpreted as a "
    "CUlibrary; for another handle pass CUmodule(number) of cuda.bindings.driver"
)
_NOT_CAPTURED, _CAPTURED, _EXCLUSIVE_PROCESS = 0, 1, 3
_NOT_FOUND = "CUDA_ERROR_NOT_FOUND"
_PAGES: list[mmap.mmap] = []
"""Pinned memory, which stays registered with the driver to the end of the process."""


@dataclass(frozen=True)
class DeviceFacts:
    """A device: ordinal, name, number of SMs, highest SM clock (0: unknown), UUID, and whether it takes one process."""

    ordinal: int
    name: str
    sms: int
    max_clock_khz: int = 0
    uuid: str = ""
    exclusive: bool = False


class Memory(Protocol):
    """Copies from device memory. All raise DriverError."""

    def synchronize(self, stream: int) -> None: ...
    def read(self, into: Bytes, address: int, stream: int) -> None: ...
    def read_ranges(self, into: Bytes, ranges: Ranges, stream: int) -> None: ...


def _bindings() -> ModuleType:
    """cuda.bindings.driver, or cuda.cuda of older cuda-python. Raises ImportError if neither is installed."""
    try:
        return import_module("cuda.bindings.driver")
    except ModuleNotFoundError as error:
        if error.name not in ("cuda", "cuda.bindings"):
            raise
    return import_module("cuda.cuda")


def _refused(call: str, result: Any) -> DriverError:
    """The error for a call that returned this CUresult."""
    advice = _GIVEN if result.name == _INVALID and call in _OF_A_HANDLE else _ADVICE.get(result.name, "")
    return DriverError(call, result.name, int(result), advice)


class CudaDriver:
    """The real driver. Raises MissingError without a driver or device, ImportError without bindings."""

    def __init__(self) -> None:
        self._cu: Any = _bindings()
        self.primary = PrimaryContexts(self._call)
        try:
            self._call("cuInit", 0)
            count = int(self._call("cuDeviceGetCount"))
        except DriverError as error:
            raise MissingError(f"no usable NVIDIA driver ({error}): nvidia-smi must work here") from error
        except (RuntimeError, OSError) as error:
            raise MissingError("no NVIDIA driver: libcuda.so.1 cannot be loaded; nvidia-smi must work here") from error
        if count == 0:
            raise MissingError("the NVIDIA driver sees no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES")

    def _call(self, name: str, *arguments: Any) -> Any:
        result, *values = getattr(self._cu, name)(*arguments)
        if int(result) != 0:
            raise _refused(name, result)
        return values[0] if len(values) == 1 else values

    def context(self) -> int:
        """The thread's current context, 0 for none."""
        result, context = self._cu.cuCtxGetCurrent()  # for each launch: without _call()
        if result:
            raise _refused("cuCtxGetCurrent", result)
        return int(context)

    def set_context(self, context: int) -> None:
        """Make a context current in this thread."""
        self._call("cuCtxSetCurrent", context)

    def facts(self) -> DeviceFacts:
        """The current context's device."""
        device = self._call("cuCtxGetDevice")
        name, (sms, clock, mode) = self._described(device, "MULTIPROCESSOR_COUNT", "CLOCK_RATE", "COMPUTE_MODE")
        uuid = UUID(bytes=bytes(self._call("cuDeviceGetUuid", device).bytes))
        return DeviceFacts(int(device), name, sms, clock, f"GPU-{uuid}", mode == _EXCLUSIVE_PROCESS)

    def devices(self) -> int:
        """Number of GPUs."""
        return int(self._call("cuDeviceGetCount"))

    def use(self, ordinal: int) -> None:
        """Make a GPU's primary context current, the one that every CUDA library shares."""
        self.set_context(int(self._call("cuDevicePrimaryCtxRetain", self._call("cuDeviceGet", ordinal))))

    def about(self, ordinal: int) -> str:
        """A description of a GPU, in one line."""
        device = self._call("cuDeviceGet", ordinal)
        facts = ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT")
        name, (major, minor, sms) = self._described(device, *facts)
        memory, version = int(self._call("cuDeviceTotalMem", device)) >> 30, int(self._call("cuDriverGetVersion"))
        cuda = f"{version // 1000}.{version % 1000 // 10}"
        return f"{name}, sm_{major}{minor}, {sms} SMs, {memory} GiB; the driver supports CUDA {cuda}"

    def _described(self, device: Any, *facts: str) -> tuple[str, list[int]]:
        """The name of a device, and some of its attributes."""
        name = self._call("cuDeviceGetName", 256, device).partition(b"\0")[0].decode()
        numbers = [getattr(self._cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{fact}") for fact in facts]
        return name, [int(self._call("cuDeviceGetAttribute", one, device)) for one in numbers]

    def free_memory(self) -> int:
        """Free bytes of the device."""
        return int(self._call("cuMemGetInfo")[0])

    def allocate(self, size: int) -> Allocation:
        """Allocate device memory, not cleared; if possible, another process can read it when this context is broken."""
        return device_memory.allocate(self._cu, self._call, size)

    def map(self, file: int, size: int) -> int:
        """Map another process's allocation of `size` bytes. Returns its address."""
        return device_memory.map_file(self._cu, self._call, file, size)

    def free(self, memory: Allocation) -> None:
        """Free device memory. Waits for everything that runs."""
        device_memory.free(self._call, memory)

    def pinned(self, size: int) -> Bytes:
        """Page-locked host memory that every device can access at the same address; never freed. It is the process's,
        so cudaDeviceReset() does not unmap it under the drain, which may be reading it.
        """
        pages = mmap.mmap(-1, size)
        buffer = np.frombuffer(pages, np.uint8)
        self.register(buffer)
        _PAGES.append(pages)
        return buffer

    def register(self, memory: Bytes) -> None:
        """Lock pages of host memory, which kernels can then access at the same address."""
        device_memory.register(self._cu, self._call, memory)

    def unregister(self, memory: Bytes) -> None:
        """Undo register()."""
        device_memory.unregister(self._call, memory)

    def stream(self) -> int:
        """A stream that does not synchronize with the default stream."""
        return int(self._call("cuStreamCreate", int(self._cu.CUstream_flags.CU_STREAM_NON_BLOCKING)))

    def synchronize(self, stream: int) -> None:
        """Wait for the stream's work."""
        self._call("cuStreamSynchronize", stream)

    def capture(self, stream: int) -> int | None:
        """The id of the stream's graph capture; 0 for none, None if that cannot be known."""
        result, *status = self._cu.cuStreamIsCapturing(stream)  # several times faster than its id
        if not result and status[0] == _NOT_CAPTURED:
            return 0
        result, *found = self._cu.cuStreamGetCaptureInfo(stream)
        return int(found[1]) if int(result) == 0 and int(found[0]) == _CAPTURED else None

    def ready(self, stream: int) -> bool:
        """True if the stream's work is done."""
        result = self._cu.cuStreamQuery(stream)[0]
        if result.name == "CUDA_ERROR_NOT_READY":
            return False
        if int(result) != 0:
            raise _refused("cuStreamQuery", result)
        return True

    def synchronize_context(self) -> None:
        """Wait for all work of the context."""
        self._call("cuCtxSynchronize")

    def read(self, into: Bytes, address: int, stream: int) -> None:
        """Copy device to host, asynchronously if `into` is pinned."""
        self._call("cuMemcpyDtoHAsync", into.ctypes.data, address, into.nbytes, stream)

    def write(self, address: int, words: Bytes, stream: int) -> None:
        """Copy host to device, asynchronously if `words` is pinned: do not change it until synchronized."""
        self._call("cuMemcpyHtoDAsync", address, words.ctypes.data, words.nbytes, stream)

    def read_ranges(self, into: Bytes, ranges: Ranges, stream: int) -> None:
        """Like read(), one range after the other in `into`."""
        read_each(self, into, ranges, stream)

    def write_ranges(self, ranges: Ranges, words: Bytes, stream: int) -> None:
        """Like write(), the first of the words to each range, none of which is larger than they are."""
        for address, size in zip(ranges.address.tolist(), ranges.size.tolist(), strict=True):
            self.write(address, words[:size], stream)

    def entry_points(self) -> EntryPoints | None:
        """Addresses for compiled code; None without any, or if it is turned off."""
        return entry_points() if native.available() else None

    def check(self, call: str, result: int) -> None:
        """Raise the error of a call in compiled code."""
        if result:
            raise _refused(call, self._cu.CUresult(result))

    def write_column(self, address: int, pitch: int, words: Bytes, width: int, stream: int) -> None:
        """Write `width` bytes to every `pitch` bytes from `address` on, consecutively from `words`."""
        copy = self._cu.CUDA_MEMCPY2D()
        copy.srcMemoryType = self._cu.CUmemorytype.CU_MEMORYTYPE_HOST
        copy.srcHost, copy.srcPitch = words.ctypes.data, width
        copy.dstMemoryType = self._cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.dstDevice, copy.dstPitch = self._cu.CUdeviceptr(address), pitch
        copy.WidthInBytes, copy.Height = width, words.nbytes // width
        self._call("cuMemcpy2DAsync", copy, stream)

    def symbol(self, module: int, name: str) -> tuple[int, int] | None:
        """(address, bytes) of a module's global or constant; None if there is none of that name."""
        result, *values = self._cu.cuModuleGetGlobal(module, name.encode())
        if result.name == _NOT_FOUND:
            return None
        if int(result) != 0:
            raise _refused("cuModuleGetGlobal", result)
        return int(values[0]), int(values[1])

    def module_of_library(self, library: int) -> int:
        """A library's module in the current context; loads it if necessary."""
        return int(self._call("cuLibraryGetModule", library))

    def library_of_kernel(self, kernel: int) -> int:
        """The library of a kernel. Raises UnsupportedError before CUDA 12.5."""
        if not hasattr(self._cu, "cuKernelGetLibrary"):
            raise UnsupportedError("cuda-bindings before 12.5 cannot find a kernel's library: pass the library itself")
        try:
            return int(self._call("cuKernelGetLibrary", kernel))
        except DriverError:
            raise
        except RuntimeError as error:  # from cuda-bindings, for functions that the driver lacks
            text = "a driver before CUDA 12.5 cannot find a kernel's library: pass the library itself"
            raise UnsupportedError(text) from error

    def module_of_function(self, function: int) -> int:
        """The module of a function."""
        return int(self._call("cuFuncGetModule", function))

    def load(self, ptx: str) -> int:
        """Assemble and load PTX into the current context. Returns the module."""
        return int(self._call("cuModuleLoadData", ptx.encode() + b"\0"))

    def copy_attribute(self, of: int, to: int, number: int) -> None:
        """Give a function an attribute of another one, if this driver and its bindings can."""
        try:
            attribute = self._cu.CUfunction_attribute(number)
            value, before = (int(self._call("cuFuncGetAttribute", attribute, one)) for one in (of, to))
            if value != before:
                self._call("cuFuncSetAttribute", to, attribute, value)
        except (ValueError, DriverError):
            return  # the launch that needs it reports the error

    def launch(self, module: int, name: str, argument: int, stream: int, blocks: int = 1, threads: int = 1) -> None:
        """Launch a kernel with one 64-bit argument."""
        function, given = self._call("cuModuleGetFunction", module, name.encode()), ((argument,), (ctypes.c_uint64,))
        self._call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, stream, given, 0)

    @contextmanager
    def relaxed(self) -> Generator[None, None, None]:
        """A context manager: calls that a graph capture of this thread would forbid are allowed, and not captured."""
        before = self._call(
            "cuThreadExchangeStreamCaptureMode", self._cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        )
        try:
            yield
        finally:
            self._call("cuThreadExchangeStreamCaptureMode", before)
