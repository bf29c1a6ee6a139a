"""Device memory that outlives its context: it exists until no process maps it and its descriptor is closed. Every
function takes cuda-bindings' module, or the driver's checked call of a function by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kscope.errors import DriverError, UnsupportedError

from .memory_ranges import Bytes

Call = Callable[..., Any]


@dataclass(frozen=True)
class Allocation:
    """Device memory.

    Attributes:
        address: a multiple of 256.
        size: bytes.
        file: a descriptor by which another process can map the memory; -1 if the driver has none.
    """

    address: int
    size: int
    file: int = -1


def allocate(cu: Any, call: Call, size: int) -> Allocation:
    """Allocate memory, with a descriptor if the driver allows it."""
    if _under_sanitizer():
        return Allocation(int(call("cuMemAlloc", size)), size)
    supported = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
    if call("cuDeviceGetAttribute", supported, call("cuCtxGetDevice")):
        try:
            return _exported(cu, call, size)
        except DriverError as error:
            if error.name == "CUDA_ERROR_OUT_OF_MEMORY":
                raise
            # a sandbox may forbid the export
    return Allocation(int(call("cuMemAlloc", size)), size)


def free(call: Call, memory: Allocation) -> None:
    """Free memory when everything that runs has ended."""
    if memory.file < 0:
        call("cuMemFree", memory.address)
        return
    call("cuCtxSynchronize")
    call("cuMemUnmap", memory.address, memory.size)
    call("cuMemAddressFree", memory.address, memory.size)
    os.close(memory.file)


def map_file(cu: Any, call: Call, file: int, size: int) -> int:
    """Map another process's allocation of `size` bytes. Returns its address."""
    return _map(cu, call, call("cuMemImportFromShareableHandle", file, _file_type(cu)), size)


def register(cu: Any, call: Call, memory: Bytes) -> None:
    """Lock pages of host memory, which every device can then access at the same address."""
    address = memory.ctypes.data
    flags = cu.CU_MEMHOSTREGISTER_PORTABLE | cu.CU_MEMHOSTREGISTER_DEVICEMAP
    call("cuMemHostRegister", address, memory.nbytes, flags)
    if int(call("cuMemHostGetDevicePointer", address, 0)) != address:
        raise UnsupportedError("this machine's GPUs have other addresses for host memory, which kscope cannot use")


def unregister(call: Call, memory: Bytes) -> None:
    """Undo register(), when everything that runs has ended."""
    call("cuCtxSynchronize")
    call("cuMemHostUnregister", memory.ctypes.data)


def _under_sanitizer() -> bool:
    """True if compute-sanitizer watches this process: its initcheck breaks the context at a copy to other memory than
    cuMemAlloc's.
    """
    maps = Path("/proc/self/maps")
    return maps.exists() and b"libsanitizer" in maps.read_bytes()


def _exported(cu: Any, call: Call, size: int) -> Allocation:
    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location = _location(cu, call)
    properties.requestedHandleTypes = _file_type(cu)
    least = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    page = int(call("cuMemGetAllocationGranularity", properties, least))
    size = -(-size // page) * page
    handle = call("cuMemCreate", size, properties, 0)
    try:
        file = int(call("cuMemExportToShareableHandle", handle, _file_type(cu), 0))
        try:
            return Allocation(_map(cu, call, handle, size), size, file)
        except DriverError:
            os.close(file)
            raise
    finally:
        call("cuMemRelease", handle)  # the mapping and the descriptor keep the memory


def _map(cu: Any, call: Call, handle: Any, size: int) -> int:
    access = cu.CUmemAccessDesc()
    access.location = _location(cu, call)
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    address = call("cuMemAddressReserve", size, 0, 0, 0)
    call("cuMemMap", address, size, 0, handle, 0)
    call("cuMemSetAccess", address, size, [access], 1)
    return int(address)


def _location(cu: Any, call: Call) -> Any:
    location = cu.CUmemLocation()
    location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = int(call("cuCtxGetDevice"))
    return location


def _file_type(cu: Any) -> Any:
    return cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
