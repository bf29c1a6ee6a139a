"""Driver calls through cuda-bindings, with a stand-in for its module."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kscope import native
from kscope.capture import wire
from kscope.errors import DriverError, MissingError, UnsupportedError
from kscope.instrument import registry
from kscope_runtime import driver
from kscope_runtime.device_memory import Allocation
from kscope_runtime.driver import CudaDriver
from kscope_runtime.driver_calls import DriverCalls
from kscope_runtime.entry_points import EntryPoints
from kscope_runtime.memory_ranges import Ranges, in_rings


class CUresult(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


class Bindings:
    """Answers every call from `answers`, otherwise with success and `values`; logs the arguments."""

    CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_DEVICEMAP = 1, 2
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT=16,
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE=13,
        CU_DEVICE_ATTRIBUTE_COMPUTE_MODE=20,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED=103,
    )
    CUmemAllocationType = SimpleNamespace(CU_MEM_ALLOCATION_TYPE_PINNED=1)
    CUmemAllocationHandleType = SimpleNamespace(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR=1)
    CUmemAllocationGranularity_flags = SimpleNamespace(CU_MEM_ALLOC_GRANULARITY_MINIMUM=0)
    CUmemLocationType = SimpleNamespace(CU_MEM_LOCATION_TYPE_DEVICE=1)
    CUmemAccess_flags = SimpleNamespace(CU_MEM_ACCESS_FLAGS_PROT_READWRITE=3)
    CUmemAllocationProp = CUmemLocation = CUmemAccessDesc = SimpleNamespace
    CUmemorytype = SimpleNamespace(CU_MEMORYTYPE_HOST=1, CU_MEMORYTYPE_DEVICE=2)
    CUDA_MEMCPY2D = SimpleNamespace
    CUdeviceptr = int

    def __init__(self) -> None:
        self.answers: dict[str, CUresult | Exception] = {}
        self.values: dict[str, tuple[Any, ...]] = {
            "cuDeviceGetCount": (1,),
            "cuCtxGetDevice": (0,),
            "cuDeviceGetAttribute": (0,),
        }
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, *arguments))
            answer = self.answers.get(name, CUresult.CUDA_SUCCESS)
            if isinstance(answer, Exception):
                raise answer
            return (answer, *(self.values.get(name, ()) if answer == 0 else ()))

        return call


@pytest.fixture
def cu(monkeypatch: pytest.MonkeyPatch) -> Bindings:
    bindings = Bindings()
    monkeypatch.setattr(driver, "_bindings", lambda: bindings)
    return bindings


def test_an_error_carries_its_name_its_number_and_what_to_do(cu: Bindings) -> None:
    cu.answers["cuMemAlloc"] = CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DriverError, match=r"cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY \(2\).*smaller profile\(pool"):
        CudaDriver().allocate(1)


@pytest.fixture
def exported(cu: Bindings) -> Iterator[int]:
    """A driver that exports memory as this descriptor."""
    file, other = os.pipe()
    os.close(other)
    cu.values |= {
        "cuDeviceGetAttribute": (1,),
        "cuMemGetAllocationGranularity": (2 << 20,),
        "cuMemCreate": (77,),
        "cuMemExportToShareableHandle": (file,),
        "cuMemAddressReserve": (5 << 36,),
    }
    yield file
    with suppress(OSError):
        os.close(file)


def test_device_memory_is_allocated_such_that_it_outlives_its_context(cu: Bindings, exported: int) -> None:
    memory = CudaDriver().allocate(3 << 20)
    assert memory == Allocation(5 << 36, 4 << 20, exported)
    assert ("cuMemMap", 5 << 36, 4 << 20, 0, 77, 0) in cu.calls
    assert ("cuMemRelease", 77) in cu.calls
    CudaDriver().free(memory)
    assert cu.calls[-3:] == [
        ("cuCtxSynchronize",),
        ("cuMemUnmap", 5 << 36, 4 << 20),
        ("cuMemAddressFree", 5 << 36, 4 << 20),
    ]
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(exported)


def test_memory_is_allocated_even_if_it_cannot_be_exported(cu: Bindings, exported: int) -> None:
    cu.answers["cuMemExportToShareableHandle"] = CUresult.CUDA_ERROR_NOT_FOUND
    cu.values["cuMemAlloc"] = (4096,)
    memory = CudaDriver().allocate(100)
    assert memory == Allocation(4096, 100)
    assert ("cuMemRelease", 77) in cu.calls
    CudaDriver().free(memory)
    assert cu.calls[-1] == ("cuMemFree", 4096)


def test_memory_under_compute_sanitizer_is_not_exported(
    cu: Bindings, exported: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cu.values["cuMemAlloc"] = (4096,)
    monkeypatch.setattr("kscope_runtime.device_memory._under_sanitizer", lambda: True)
    assert CudaDriver().allocate(100) == Allocation(4096, 100)


def test_a_failed_allocation_is_reported_without_leaking_descriptors(cu: Bindings, exported: int) -> None:
    cu.answers["cuMemAddressReserve"] = CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DriverError, match="OUT_OF_MEMORY"):
        CudaDriver().allocate(100)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(exported)


@pytest.mark.parametrize(
    "answer",
    [CUresult.CUDA_ERROR_NO_DEVICE, RuntimeError("libcuda.so.1 was not found"), OSError("no such file")],
    ids=["no device", "no library", "broken library"],
)
def test_a_missing_driver_is_reported(cu: Bindings, answer: CUresult | Exception) -> None:
    cu.answers["cuInit"] = answer
    with pytest.raises(MissingError, match="nvidia-smi"):
        CudaDriver()


def test_a_driver_without_a_gpu_is_reported(cu: Bindings) -> None:
    cu.values["cuDeviceGetCount"] = (0,)
    with pytest.raises(MissingError, match="CUDA_VISIBLE_DEVICES"):
        CudaDriver()


def test_missing_bindings_name_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

    monkeypatch.setattr(driver, "import_module", missing)
    monkeypatch.setattr(registry, "_backends", {})
    with pytest.raises(MissingError, match=r"pip install '\.\[cuda\]' in a checkout"):
        registry.backend("cuda")


def test_older_cuda_python_bindings_are_a_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    def older(name: str) -> str:
        if name == "cuda.bindings.driver":
            raise ModuleNotFoundError("No module named 'cuda.bindings'", name="cuda.bindings")
        return name

    monkeypatch.setattr(driver, "import_module", older)
    assert driver._bindings() == "cuda.cuda"  # type: ignore[comparison-overlap]  # a stand-in


def test_missing_symbols_are_none(cu: Bindings) -> None:
    cu.answers["cuModuleGetGlobal"] = CUresult.CUDA_ERROR_NOT_FOUND
    assert CudaDriver().symbol(1, "kscope_ctl") is None
    cu.answers["cuModuleGetGlobal"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DriverError, match="700"):
        CudaDriver().symbol(1, "kscope_ctl")


def test_a_stream_is_queried_without_waiting(cu: Bindings) -> None:
    assert CudaDriver().ready(1)
    cu.answers["cuStreamQuery"] = CUresult.CUDA_ERROR_NOT_READY
    assert not CudaDriver().ready(1)
    cu.answers["cuStreamQuery"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DriverError):
        CudaDriver().ready(1)


def test_the_graph_capture_of_a_stream_has_an_id(cu: Bindings) -> None:
    for answer, status, number in (
        (CUresult.CUDA_SUCCESS, 0, 0),
        (CUresult.CUDA_SUCCESS, 1, 77),
        (CUresult.CUDA_SUCCESS, 2, None),  # invalidated
        (CUresult.CUDA_ERROR_ILLEGAL_ADDRESS, 0, None),
    ):
        cu.answers |= dict.fromkeys(("cuStreamIsCapturing", "cuStreamGetCaptureInfo"), answer)
        cu.values |= {"cuStreamIsCapturing": (status,), "cuStreamGetCaptureInfo": (status, 77, None)}
        assert CudaDriver().capture(1) == number


def test_the_graph_capture_mode_is_always_restored(cu: Bindings) -> None:
    cu.values["cuThreadExchangeStreamCaptureMode"] = (0,)
    with pytest.raises(ZeroDivisionError), CudaDriver().relaxed():
        _ = 1 / 0
    modes = [call[1] for call in cu.calls if call[0] == "cuThreadExchangeStreamCaptureMode"]
    assert modes == [2, 0]


@pytest.mark.parametrize("offset", [0, 4096])
def test_pinned_memory_is_process_memory_with_one_address(cu: Bindings, offset: int) -> None:
    """What the driver allocated would be unmapped by cudaDeviceReset() while the drain reads it."""
    cu.cuMemHostGetDevicePointer = lambda address, flags: (CUresult.CUDA_SUCCESS, address + offset)
    made = CudaDriver()
    if offset:
        with pytest.raises(UnsupportedError, match="other addresses for host memory"):
            made.pinned(64)
        return
    buffer = made.pinned(64)
    address = buffer.ctypes.data
    assert ("cuMemHostRegister", address, 64, 3) in cu.calls
    assert address % mmap.PAGESIZE == 0 and not buffer.any()
    del buffer, made
    gc.collect()
    assert not any((ctypes.c_uint8 * 64).from_address(address))


def test_copies_name_addresses_sizes_and_the_stream(cu: Bindings) -> None:
    words, made = np.zeros(8, np.uint8), CudaDriver()
    made.read(words, 0x100, 5)
    made.write(0x200, words[2:4], 5)
    assert cu.calls[-2:] == [
        ("cuMemcpyDtoHAsync", words.ctypes.data, 0x100, 8, 5),
        ("cuMemcpyHtoDAsync", 0x200, words.ctypes.data + 2, 2, 5),
    ]


def test_a_column_is_written_in_one_call(cu: Bindings) -> None:
    words = np.zeros(12, np.uint8)
    CudaDriver().write_column(0x1004, 128, words, 4, 5)
    name, copy, stream = cu.calls[-1]
    assert (name, stream) == ("cuMemcpy2DAsync", 5)
    assert (copy.dstDevice, copy.dstPitch, copy.WidthInBytes, copy.Height) == (0x1004, 128, 4, 3)
    assert (copy.srcHost, copy.srcPitch) == (words.ctypes.data, 4)


def test_device_facts_are_those_of_the_current_device(cu: Bindings) -> None:
    cu.values |= {"cuCtxGetDevice": (1,), "cuDeviceGetName": (b"NVIDIA H200\0\0\0",), "cuDeviceGetAttribute": (132,)}
    cu.values["cuDeviceGetUuid"] = (SimpleNamespace(bytes=bytes(range(16))),)
    facts = CudaDriver().facts()
    assert (facts.ordinal, facts.name, facts.sms) == (1, "NVIDIA H200", 132)
    assert facts.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert [arguments for name, *arguments in cu.calls if name == "cuDeviceGetAttribute"] == [[16, 1], [13, 1], [20, 1]]


def test_every_handle_type_resolves_to_its_module(cu: Bindings) -> None:
    cu.values |= {"cuLibraryGetModule": (11,), "cuKernelGetLibrary": (22,), "cuFuncGetModule": (33,)}
    made = CudaDriver()
    assert (made.module_of_library(1), made.library_of_kernel(2), made.module_of_function(3)) == (11, 22, 33)
    assert cu.calls[-3:] == [("cuLibraryGetModule", 1), ("cuKernelGetLibrary", 2), ("cuFuncGetModule", 3)]


def test_bindings_that_cannot_resolve_a_kernels_library_name_the_remedy(
    cu: Bindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = CudaDriver()
    monkeypatch.setattr(made, "_cu", SimpleNamespace())
    with pytest.raises(UnsupportedError, match=r"before 12\.5.*pass the library itself"):
        made.library_of_kernel(2)


def test_a_driver_that_cannot_resolve_a_kernels_library_names_the_remedy(cu: Bindings) -> None:
    cu.answers["cuKernelGetLibrary"] = RuntimeError('Function "cuKernelGetLibrary" not found')
    with pytest.raises(UnsupportedError, match=r"driver before CUDA 12\.5.*pass the library itself"):
        CudaDriver().library_of_kernel(2)


def test_invalid_internal_handles_give_the_plain_driver_error(cu: Bindings) -> None:
    cu.answers["cuStreamSynchronize"] = CUresult.CUDA_ERROR_INVALID_HANDLE
    with pytest.raises(DriverError, match=r"cuStreamSynchronize failed: CUDA_ERROR_INVALID_HANDLE \(400\)$"):
        CudaDriver().synchronize(1)


@pytest.mark.parametrize(
    ("call", "ask"),
    {
        "cuLibraryGetModule": CudaDriver.module_of_library,
        "cuKernelGetLibrary": CudaDriver.library_of_kernel,
        "cuFuncGetModule": CudaDriver.module_of_function,
    }.items(),
)
def test_an_unknown_handle_error_suggests_causes(
    cu: Bindings, call: str, ask: Callable[[CudaDriver, int], int]
) -> None:
    cu.answers[call] = CUresult.CUDA_ERROR_INVALID_HANDLE
    with pytest.raises(
        DriverError, match=r"CUDA_ERROR_INVALID_HANDLE \(400\)\. it was unloaded.*pass CUmodule\(number\)"
    ):
        ask(CudaDriver(), 1)


@pytest.fixture
def copied(cu: Bindings, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """The (size, stream) of each copy that a compiled call made, in host memory; those of 3 bytes fail."""
    calls: list[tuple[int, int]] = []

    def copy(to: int, source: int, size: int, stream: int) -> int:
        calls.append((size, stream))
        ctypes.memmove(to, source, size)
        return CUresult.CUDA_ERROR_ILLEGAL_ADDRESS if size == 3 else CUresult.CUDA_SUCCESS

    kind = ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_uint64,) * 4)
    functions = [kind(copy), kind(copy), kind(lambda *_: 0)]
    read, write, other = (ctypes.cast(one, ctypes.c_void_p).value or 0 for one in functions)
    monkeypatch.setattr(driver, "entry_points", lambda: EntryPoints(read, write, other, other, other))
    monkeypatch.setattr(cu, "CUresult", CUresult, raising=False)
    yield calls
    del functions


@pytest.mark.skipif(not native.available(), reason="kscope was installed without a C compiler")
def test_copies_are_made_in_order_at_the_next_wait(copied: list[tuple[int, int]]) -> None:
    memory, into = np.arange(100, dtype=np.uint8), np.zeros(20, np.uint8)
    base, calls = memory.ctypes.data, DriverCalls(CudaDriver())
    calls.read_ranges(into, Ranges(np.array([base + 50, base + 7], np.uint64), np.array([2, 4])), 9)
    calls.write_ranges(Ranges(np.array([base + 1, base + 20], np.uint64), np.array([5, 2])), into, 8)
    assert not copied
    calls.synchronize(9)
    assert into[:7].tolist() == [50, 51, 7, 8, 9, 10, 0] and copied == [(2, 9), (4, 9), (5, 8), (2, 8)]
    assert memory[1:7].tolist() == [50, 51, 7, 8, 9, 6] and memory[20:23].tolist() == [50, 51, 22]
    calls.flush()
    assert len(copied) == 4


@pytest.mark.skipif(not native.available(), reason="kscope was installed without a C compiler")
def test_a_copy_that_fails_is_the_last_one(copied: list[tuple[int, int]]) -> None:
    memory, calls = np.arange(100, dtype=np.uint8), DriverCalls(CudaDriver())
    ranges = Ranges(np.full(3, memory.ctypes.data, np.uint64), np.array([2, 3, 4]))
    calls.write_ranges(ranges, np.zeros(9, np.uint8), 9)
    with pytest.raises(DriverError, match=r"cuMemcpyHtoDAsync failed: CUDA_ERROR_ILLEGAL_ADDRESS \(700\)"):
        calls.synchronize(9)
    assert [size for size, _ in copied] == [2, 3]


def test_ranges_are_copied_one_by_one_without_compiled_loops(cu: Bindings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSCOPE_NATIVE", "0")
    ranges, words = Ranges(np.array([4096, 64], np.uint64), np.array([2, 4])), np.zeros(8, np.uint8)
    calls = DriverCalls(CudaDriver())
    calls.read_ranges(words, ranges, 9)
    calls.write_ranges(ranges, words, 9)
    at = words.ctypes.data
    assert [call for call in cu.calls if call[0].startswith("cuMemcpy")] == [
        ("cuMemcpyDtoHAsync", at, 4096, 2, 9),
        ("cuMemcpyDtoHAsync", at + 2, 64, 4, 9),
        ("cuMemcpyHtoDAsync", 4096, at, 2, 9),
        ("cuMemcpyHtoDAsync", 64, at, 4, 9),
    ]


@pytest.mark.parametrize(
    ("tail", "units", "expected"),
    [
        (0, 3, [(1 << 20, 96)]),
        (62, 5, [((1 << 20) + 62 * 32, 64), (1 << 20, 96)]),
        ((1 << 32) - 1, 2, [((1 << 20) + 63 * 32, 32), (1 << 20, 32)]),
        (5, 0, []),
    ],
    ids=["straight", "over the edge", "positions wrap", "nothing"],
)
@pytest.mark.parametrize("compiled", ["1", "0"])
def test_units_of_a_ring_are_one_or_two_ranges(
    compiled: str, tail: int, units: int, expected: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KSCOPE_NATIVE", compiled)
    table = np.zeros(1, wire.STRIPE)
    table["base"], table["mask"] = 1 << 20, 63
    found = in_rings(table, np.array([tail], np.uint32), np.array([units]))
    assert list(zip(found.address.tolist(), found.size.tolist(), strict=True)) == expected


def test_ranges_are_cut_to_a_size() -> None:
    cut = Ranges(np.array([100, 1000, 2000], np.uint64), np.array([10, 4, 5])).at_most(4)
    assert list(zip(cut.address.tolist(), cut.size.tolist(), strict=True)) == [
        (100, 4), (104, 4), (108, 2), (1000, 4), (2000, 4), (2004, 1)
    ]  # fmt: skip
