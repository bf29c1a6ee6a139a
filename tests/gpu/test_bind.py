"""Code loaded directly through the driver records after kscope.bind(), with every type of handle."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kscope
import kscope_cuda
from kscope.errors import UsageError

from .checks import doubts, sync

driver: Any = pytest.importorskip("cuda.bindings.driver", reason="needs cuda-bindings", exc_type=ImportError)
pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")

SOURCE = r"""
#include <kscope.cuh>
extern "C" __global__ void own(int* out, int n) {
  KSCOPE_KERNEL();
  for (int k = 0; k < n; k++) {
    KSCOPE_REGION_V("step", k);
    if (threadIdx.x == 0) out[blockIdx.x] += k;
    __syncthreads();
  }
}
"""
BLOCKS, THREADS, STEPS = 5, 64, 3
Load = Callable[[bytes], tuple[Any, Any]]


def of(call: tuple[Any, ...]) -> Any:
    """The result of a driver call besides its status."""
    assert int(call[0]) == 0, call
    return call[1] if len(call) == 2 else call[1:]


@pytest.fixture(autouse=True)
def _context() -> None:
    """The GPU is current before anything is loaded."""
    import torch

    torch.zeros(1, device="cuda")


@cache
def built(*options: str) -> bytes:
    """nvcc's output for this GPU, without host code."""
    import tempfile

    import torch

    major, minor = torch.cuda.get_device_capability()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "own.cu").write_text(SOURCE)
        arch, where = f"-arch=sm_{major}{minor}", f"-I{kscope.cuda_include()}"
        subprocess.run(["nvcc", arch, where, *options, "own.cu", "-o", "own"], cwd=folder, check=True)
        return Path(folder, "own").read_bytes()


def lowered() -> bytes:
    """The cubin that kscope makes of the source's marks."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    kscope.enable()
    try:
        return kscope_cuda.Compilation().lower(built("-ptx", "-DKSCOPE_MARKS=1"), f"sm_{major}{minor}") + b"\0"
    finally:
        kscope.disable()


def module(code: bytes) -> tuple[Any, Any]:
    """The code as a module: its handle, and the function to launch."""
    made = of(driver.cuModuleLoadData(code))
    return made, of(driver.cuModuleGetFunction(made, b"own"))


def library(code: bytes) -> tuple[Any, Any]:
    made = of(driver.cuLibraryLoadData(code, [], [], 0, [], [], 0))
    return made, of(driver.cuKernelGetFunction(of(driver.cuLibraryGetKernel(made, b"own"))))


def number(code: bytes) -> tuple[Any, Any]:
    """A library as C++ might hand it over."""
    made, function = library(code)
    return int(made), function


def pointer(code: bytes) -> tuple[Any, Any]:
    made, function = library(code)
    return ctypes.pointer(ctypes.c_void_p(int(made))), function


def kernel(code: bytes) -> tuple[Any, Any]:
    made, function = library(code)
    return of(driver.cuLibraryGetKernel(made, b"own")), function


def function(code: bytes) -> tuple[Any, Any]:
    made = module(code)[1]
    return made, made


class Launches:
    """A function that counts: after each launch its blocks hold 0 + 1 + 2 more."""

    def __init__(self, function: Any) -> None:
        import torch

        self.function, self.times = function, 0
        self.out = torch.zeros(BLOCKS, device="cuda", dtype=torch.int32)

    def once(self) -> kscope.Trace:
        arguments = ((self.out.data_ptr(), STEPS), (ctypes.c_uint64, ctypes.c_int))
        sync()
        with kscope.profile() as prof:
            of(driver.cuLaunchKernel(self.function, BLOCKS, 1, 1, THREADS, 1, 1, 0, 0, arguments, 0))
            sync()
        self.times += 1
        assert self.out.tolist() == [3 * self.times] * BLOCKS
        return prof.trace


def all_there(trace: kscope.Trace) -> None:
    assert not doubts(trace)
    assert trace.kernels == ("own",)
    assert len(trace) == BLOCKS * THREADS // 32 * STEPS
    assert sorted(set(trace.value.tolist())) == [0, 1, 2]


@pytest.mark.parametrize("load", [module, library, number, pointer, kernel, function], ids=lambda load: load.__name__)
def test_driver_loaded_code_records_after_bind(load: Load) -> None:
    handle, entry = load(lowered())
    launches = Launches(entry)
    assert len(launches.once()) == 0
    assert kscope.bind(handle) == ("own",)
    all_there(launches.once())
    all_there(launches.once())


def test_nvcc_code_with_in_place_regions_records_with_its_file() -> None:
    code = built("-cubin", *kscope_cuda.flags())
    handle, entry = module(code)
    launches = Launches(entry)
    assert len(launches.once()) == 0
    with pytest.raises(UsageError, match="its file"):
        kscope.bind(handle)
    assert kscope.bind(handle, code) == ("own",)
    all_there(launches.once())


def test_code_bound_during_a_session_records_from_then_on() -> None:
    import torch

    out = torch.zeros(BLOCKS, device="cuda", dtype=torch.int32)
    arguments = ((out.data_ptr(), STEPS), (ctypes.c_uint64, ctypes.c_int))
    handle, entry = module(lowered())
    with kscope.profile() as prof:
        for bound in (False, True):
            if bound:
                sync()  # queued launches would otherwise see a bound module
                kscope.bind(handle)
            of(driver.cuLaunchKernel(entry, BLOCKS, 1, 1, THREADS, 1, 1, 0, 0, arguments, 0))
    assert out.tolist() == [6] * BLOCKS
    all_there(prof.trace)


def test_a_bound_module_may_be_unloaded_without_notice() -> None:
    handle, entry = module(lowered())
    kscope.bind(handle)
    all_there(Launches(entry).once())
    of(driver.cuModuleUnload(handle))
    handle, entry = module(lowered())  # at the same address, perhaps
    launches = Launches(entry)
    assert len(launches.once()) == 0
    kscope.bind(handle)
    all_there(launches.once())


def test_plain_code_is_refused() -> None:
    handle, entry = module(built("-cubin", "-DKSCOPE=0"))
    with pytest.raises(UsageError, match="no kscope marks"):
        kscope.bind(handle)
    assert len(Launches(entry).once()) == 0
