"""Memory of a broken context, read by a real process; its driver is a stand-in whose device memory is files."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kscope.errors import UnsupportedError
from kscope_runtime.device_memory import Allocation
from kscope_runtime.salvage import SalvagedMemory

BINDINGS = """
import ctypes, os
from types import SimpleNamespace

class CUresult(int):
    name = "CUDA_SUCCESS"

CUmemAllocationHandleType = SimpleNamespace(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR=1)
CUmemLocationType = SimpleNamespace(CU_MEM_LOCATION_TYPE_DEVICE=1)
CUmemAccess_flags = SimpleNamespace(CU_MEM_ACCESS_FLAGS_PROT_READWRITE=3)
CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
CUmemLocation = CUmemAccessDesc = SimpleNamespace
mapped = {}

def cuMemImportFromShareableHandle(file, kind):
    return CUresult(), file

def cuMemAddressReserve(size, *rest):
    return CUresult(), (len(mapped) + 1) << 40

def cuMemMap(address, size, offset, handle, flags):
    mapped[address] = handle
    return (CUresult(),)

def cuMemcpyDtoHAsync(into, address, size, stream):
    if os.environ.get("DIES"):
        os._exit(9)
    start = address >> 40 << 40
    ctypes.memmove(into, os.pread(mapped[start], size, address - start), size)
    return (CUresult(),)

def __getattr__(name):
    return lambda *arguments: (CUresult(), 1)
"""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Allocation]]:
    """Two allocations; byte n of the second one is n modulo 251."""
    package = tmp_path / "site" / "cuda" / "bindings"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "driver.py").write_text(BINDINGS)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    contents = bytes(4096), bytes(n % 251 for n in range(100_000))
    allocations = []
    for number, content in enumerate(contents):
        path = tmp_path / f"memory{number}"
        path.write_bytes(content)
        allocations.append(Allocation((number + 5) << 36, len(content), os.open(path, os.O_RDONLY)))
    yield allocations
    for each in allocations:
        os.close(each.file)


def test_another_process_reads_any_part_of_any_allocation(memory: list[Allocation]) -> None:
    with SalvagedMemory(0, memory) as salvaged:
        for first, size in ((0, 16), (70_000, 30_000), (0, 100_000)):
            into = np.zeros(size, np.uint8)
            salvaged.read(into, memory[1].address + first, 0)
            assert np.array_equal(into, np.arange(first, first + size) % 251)
        into = np.ones(4096, np.uint8)
        salvaged.read(into, memory[0].address, 0)
        assert not into.any()


def test_memory_is_salvaged_from_programs_with_thousands_of_open_files(memory: list[Allocation]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this machine allows fewer open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    files = [os.dup(memory[0].file) for _ in range(1100)]
    try:
        with SalvagedMemory(0, memory) as salvaged:
            into = np.zeros(16, np.uint8)
            salvaged.read(into, memory[1].address, 0)
            assert into.tolist() == [*range(16)]
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_that_cannot_read_the_memory_ends_with_its_reason(
    memory: list[Allocation], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIES", "1")
    with SalvagedMemory(0, memory) as salvaged, pytest.raises(UnsupportedError, match="ended: 9"):
        salvaged.read(np.zeros(16, np.uint8), memory[0].address, 0)


def test_the_salvaging_process_is_not_recorded(memory: list[Allocation], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSCOPE", "1")
    with SalvagedMemory(0, memory) as salvaged:
        salvaged.read(np.zeros(16, np.uint8), memory[0].address, 0)  # it has begun
        environment = Path(f"/proc/{salvaged._child.pid}/environ").read_bytes()
    assert b"KSCOPE=" not in environment and b"PYTHONPATH=" in environment


def test_memory_without_a_descriptor_cannot_be_read() -> None:
    with pytest.raises(UnsupportedError, match="this driver cannot share device memory"):
        SalvagedMemory(0, [Allocation(1 << 36, 4096)])
