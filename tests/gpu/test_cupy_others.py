"""CUDA C++ on a GPU by other ways: cuda.core, PyTorch's load_inline; and compute-sanitizer over CuPy kernels."""

from __future__ import annotations

import ctypes
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import kscope

from .checks import CLOCKS, doubts, python, run


def missing(*modules: str) -> list[str]:
    return [name for name in modules if find_spec(name.split(".")[0]) is None or find_spec(name) is None]


@pytest.mark.parametrize("language", ["cupy", "cuda.core"])
def test_the_demo_records_on_the_gpu(tmp_path: Path, language: str) -> None:
    if missing(language):
        pytest.skip(f"needs {language}")
    done = run([sys.executable, "-m", "kscope", "demo", "--on", language, "-o", "d.pftrace"], cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    trace = kscope.load(tmp_path / "kscope-demo.kscope")
    assert {problem.kind for problem in trace.problems} <= CLOCKS
    # 32 warps of 256 blocks: the loop, the store, and two regions in each of 16 iterations
    assert len(trace) == 256 * 32 * (2 + 2 * 16)


@pytest.mark.skipif(missing("cuda.core") != [], reason="needs cuda.core")
def test_a_program_of_cuda_core_records() -> None:
    import numpy as np
    from cuda.core import Device, LaunchConfig, ProgramOptions, launch

    from kscope_cuda import core

    source = r"""
    #include <kscope.cuh>
    template <class T> __global__ void fill(T* out, int n) {
        KSCOPE_REGION_V("fill", n);
        out[blockIdx.x * blockDim.x + threadIdx.x] = T(n);
    }
    """
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    plain = core.compile(source, options, name_expressions=("fill<int>",))
    kscope.enable()
    prepared = core.compile(source, options, name_expressions=("fill<int>",))
    core.arm(prepared)
    core.arm(plain)
    buffer = device.allocate(4 * 256, stream=stream)
    with kscope.profile() as prof:
        for code in (plain, prepared, prepared):
            kernel = code.get_kernel("fill<int>")
            launch(stream, LaunchConfig(grid=2, block=128), kernel, int(buffer.handle), np.int32(7))
        stream.sync()
    assert not doubts(prof.trace)
    assert len(prof.trace) == 2 * 2 * 4
    assert set(prof.trace.value.tolist()) == {7}


OWN = r"""
#include <kscope.cuh>
extern "C" __global__ void own(int* out) {
    KSCOPE_KERNEL();
    KSCOPE_REGION("own");
    out[blockIdx.x] = 7;
}
"""


@pytest.mark.parametrize("assembled", [True, False], ids=["cubin", "PTX"])
def test_programs_calling_nvrtc_directly_record(assembled: bool) -> None:
    import torch
    from cuda.bindings import driver, nvrtc

    import kscope_cuda

    def of(call: tuple[Any, ...]) -> Any:
        assert int(call[0]) == 0, call
        return call[1] if len(call) == 2 else call[1:]

    out = torch.zeros(5, device="cuda", dtype=torch.int32)
    major, minor = torch.cuda.get_device_capability()
    kscope.enable(records=8 if assembled else 16)
    compilation = kscope_cuda.Compilation()
    options = [*compilation.options(), "-std=c++17", f"-arch=compute_{major}{minor}"]
    program = of(nvrtc.nvrtcCreateProgram(OWN.encode(), b"own.cu", 0, [], []))
    of(nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options]))
    ptx = bytearray(of(nvrtc.nvrtcGetPTXSize(program)))
    of(nvrtc.nvrtcGetPTX(program, ptx))
    module = of(
        driver.cuModuleLoadData(compilation.lower(bytes(ptx), f"sm_{major}{minor}" if assembled else None) + b"\0")
    )
    kscope_cuda.loaded(module)
    kernel = of(driver.cuModuleGetFunction(module, b"own"))
    with kscope.profile() as prof:
        arguments = ((out.data_ptr(),), (ctypes.c_uint64,))
        of(driver.cuLaunchKernel(kernel, 5, 1, 1, 64, 1, 1, 0, 0, arguments, 0))
        torch.cuda.synchronize()
    assert out.tolist() == [7] * 5
    assert not doubts(prof.trace)
    assert len(prof.trace) == 5 * 2


INLINE = r"""
#include <kscope.cuh>
#include <torch/extension.h>
__global__ void twice(const float* x, float* out, int n) {
    KSCOPE_KERNEL();
    KSCOPE_REGION("twice");
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
torch::Tensor doubled(torch::Tensor x) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    twice<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""


def test_an_extension_of_load_inline_records(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if shutil.which("ninja") is None or not Path("/usr/local/cuda/bin/nvcc").exists() or shutil.which("g++") is None:
        pytest.skip("load_inline needs ninja, nvcc and g++")
    from torch.utils.cpp_extension import load_inline

    import kscope_cuda

    extension = load_inline(
        "kscope_inline",
        cpp_sources="torch::Tensor doubled(torch::Tensor x);",
        cuda_sources=INLINE,
        functions=["doubled"],
        extra_cuda_cflags=kscope_cuda.flags(),
        build_directory=str(tmp_path),
    )
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    kscope_cuda.arm(extension)
    with kscope.profile() as prof:
        out = extension.doubled(x)
    torch.testing.assert_close(out, 2 * x)
    assert not doubts(prof.trace)
    assert len(prof.trace) == 4 * 8


# regions around and between barriers of a block, with a pool that holds everything and one that does not
SUMMED = """
import cupy, numpy as np
from gpu import cupy_sources as c
n, blocks = 6, 16
x, out = cupy.arange(1, 128 * n + 1, dtype=cupy.int32), c.ints(blocks)
for strategy in (kscope.Elected(), kscope.AllThreads()):
    for pool in (None, 2 << 20):
        with kscope.profile(strategy=strategy, pool=pool) as prof:
            c.summed((blocks,), (128,), (x, out, np.int32(n)))
            c.four((300,), (128,), (c.ints(300),))
            cupy.cuda.Device().synchronize()
        assert out.get().tolist() == [128 * n * (128 * n + 1) // 2] * blocks
        print(len(prof.trace))
"""
CLEAN = {
    "memcheck": "ERROR SUMMARY: 0 errors",
    "initcheck": "ERROR SUMMARY: 0 errors",
    "synccheck": "ERROR SUMMARY: 0 errors",
    "racecheck": "RACECHECK SUMMARY: 0 hazards",
}


@pytest.mark.parametrize("tool", CLEAN)
def test_compute_sanitizer_finds_nothing_in_cupy_kernels(tool: str) -> None:
    pytest.importorskip("cupy")
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(sanitizer).exists():
        pytest.skip("needs compute-sanitizer, which comes with the CUDA toolkit")
    done = python(SUMMED, under=(sanitizer, "--tool", tool, "--error-exitcode", "9", "--report-api-errors", "no"))
    assert done.returncode == 0 and CLEAN[tool] in done.stdout, done.stdout + done.stderr
