"""Numba on a GPU: plain, prepared and armed kernels are never taken for one another, in one process or in several."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kscope

from .checks import doubts, python

numba_cuda = pytest.importorskip("contract.frontend_numba", exc_type=ImportError).cuda
CACHED = """
import kscope
from numba import cuda


@cuda.jit(device=True)
def helper(out, i):
    with kscope.region("helper"):
        out[i] += 1


@cuda.jit(cache=True)
def kernel(out):
    with kscope.region("kernel"):
        if cuda.threadIdx.x == 0:
            helper(out, cuda.blockIdx.x)
"""
RUN = """
sys.path.insert(0, sys.argv[2])
from gpu import numba_kernels as n
import cached
out = n.ints(200)
if sys.argv[1] == "plain":
    cached.kernel[200, 64](out)
    print(0, end=" ")
else:
    with kscope.profile(strategy=kscope.AllThreads() if sys.argv[1] == "all" else None) as prof:
        cached.kernel[200, 64](out)
        n.cuda.synchronize()
    print(len(prof.trace), end=" ")
assert bool((out.copy_to_host() == 1).all())
print(sum(cached.kernel.stats.cache_hits.values()))
"""
SANITIZED = """
import numpy as np
from gpu import numba_kernels as n
for pool in (None, 2 << 20):
    for strategy in (kscope.Elected(), kscope.AllThreads()):
        with kscope.profile(pool=pool, strategy=strategy) as prof:
            n.four[500, 128](n.ints(500))
            n.leaves[64, 64](n.ints(64), 40)
            x = np.ones((16, 128), np.float32)
            out = n.cuda.to_device(np.zeros(16, np.float32))
            n.summed[16, 128](n.cuda.to_device(x), out)
            n.cuda.synchronize()
        assert bool((out.copy_to_host() == 128).all())
        print(len(prof.trace))
"""


@pytest.fixture
def n() -> ModuleType:
    from . import numba_kernels

    return numba_kernels


def registers(kernel: Any) -> Any:
    return next(iter(kernel.get_regs_per_thread().values()))


def test_a_kernel_that_ran_plain_records_and_is_plain_again(n: ModuleType) -> None:
    kernel, out = numba_cuda.jit(n.four.py_func), n.ints(10)
    kernel[10, 128](out)
    plain = next(iter(kernel.overloads.values()))
    used = registers(kernel)
    for _ in range(2):
        with kscope.profile() as prof:
            kernel[10, 128](out)
            numba_cuda.synchronize()
        assert not doubts(prof.trace)
        assert len(prof.trace) == 10 * 4 * n.RECORDS
        kernel[10, 128](out)
        assert next(iter(kernel.overloads.values())) is plain and registers(kernel) == used
    with kscope.profile(records=4, strategy=kscope.Lane0Warp0()) as prof:
        kernel[10, 128](out)
        numba_cuda.synchronize()
    assert {warp.item() for warp in prof.trace.warp} == {0}


def test_a_prepared_kernel_is_armed_without_compiling(n: ModuleType) -> None:
    kernel, out = numba_cuda.jit(n.four.py_func), n.ints(10)
    kscope.enable()
    kernel[10, 128](out)
    prepared = next(iter(kernel.overloads.values()))
    with kscope.profile() as prof:
        kernel[10, 128](out)
        numba_cuda.synchronize()
    assert next(iter(kernel.overloads.values())) is prepared
    assert len(prof.trace) == 10 * 4 * n.RECORDS


def test_other_processes_find_each_state_on_disk(tmp_path: Path) -> None:
    (tmp_path / "cached.py").write_text(CACHED)

    def run(state: str) -> list[int]:
        done = python(RUN, state, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
        assert done.returncode == 0, done.stderr
        return list(map(int, done.stdout.split()))

    warps, threads = 200 * 2, 200 * 64
    assert run("on") == [warps + 200, 0]
    assert run("plain") == [0, 0]
    assert run("on") == [warps + 200, 1]
    assert run("all") == [threads + 200, 0]
    assert run("plain") == [0, 1]
    assert run("all") == [threads + 200, 1]
    assert run("on") == [warps + 200, 1]


@pytest.mark.parametrize(("tool", "summary"), [
    ("memcheck", "ERROR SUMMARY: 0 errors"), ("initcheck", "ERROR SUMMARY: 0 errors"),
    ("synccheck", "ERROR SUMMARY: 0 errors"), ("racecheck", "RACECHECK SUMMARY: 0 hazards"),
])  # fmt: skip
def test_compute_sanitizer_finds_nothing(tool: str, summary: str) -> None:
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(sanitizer).exists():
        pytest.skip("needs compute-sanitizer, which comes with the CUDA toolkit")
    done = python(SANITIZED, under=(sanitizer, "--tool", tool, "--error-exitcode", "9", "--report-api-errors", "no"))
    assert done.returncode == 0 and summary in done.stdout, done.stdout + done.stderr
