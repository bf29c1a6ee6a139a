"""Samples of kernels that an ordinary session has loaded before CUPTI was used have regions, in every language."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .checks import run

CUPY = """
import cupy, kscope
SOURCE = r'''
extern "C" __global__ void work(float* x, int n) {
    KSCOPE_KERNEL();
    float* mine = x + blockIdx.x * 256 + threadIdx.x;
    for (int k = 0; k < n; k++) {
        { KSCOPE_REGION("first"); mine[0] = mine[0] + 1; }
        { KSCOPE_REGION("second"); mine[67584] = mine[67584] * 2; }
    }
}
'''
kernel = cupy.RawKernel(SOURCE, "work", ("-I" + kscope.cuda_include(),))
x = cupy.zeros(2 * 67584, cupy.float32)
sync = cupy.cuda.Device().synchronize
def launch(n): kernel((264,), (256,), (x, cupy.int32(n)))
"""
CUTE = """
import cutlass, torch, kscope
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def work(x: cute.Tensor, n: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * 256 + thread
    for k in range(n):
        with kscope.region("first"):
            x[at] = x[at] + 1.0
        with kscope.region("second"):
            x[at + 67584] = x[at + 67584] * 2.0

@cute.jit
def host(x: cute.Tensor, n: cutlass.Int32):
    work(x, n).launch(grid=[264, 1, 1], block=[256, 1, 1])

x = from_dlpack(torch.zeros(2 * 67584, device="cuda"))
sync = torch.cuda.synchronize
compiled = None
def launch(n):
    global compiled
    compiled = compiled or cute.compile(host, x, cutlass.Int32(n))
    compiled(x, cutlass.Int32(n))
"""
NUMBA = """
import numpy as np
from numba import cuda
import kscope, kscope_numba
kscope_numba.teach()

@cuda.jit
def work(x, n):
    at = cuda.grid(1)
    for k in range(n):
        with kscope.region("first"):
            x[at] = x[at] + np.float32(1)
        with kscope.region("second"):
            x[at + 67584] = x[at + 67584] * np.float32(2)

x = cuda.to_device(np.zeros(2 * 67584, np.float32))
sync = cuda.synchronize
def launch(n): work[264, 256](x, n)
"""
SESSIONS = """
import json
from kscope.analysis.samples.stalls import stalls
with kscope.profile():
    launch(10)
    sync()
with kscope.profile(stalls=True, block="0:4") as prof:
    for _ in range(20): launch(200)
    sync()
samples = prof.capture.samples
print(json.dumps([
    {row.name: row.samples for row in stalls(samples).rows},
    [one.why_unknown for one in samples.functions if "work" in one.name],
    prof.trace.crosscheck().problems,
    [problem.text for problem in prof.trace.problems],
]))
"""
PROGRAMS = {"cupy": CUPY, "cutlass": CUTE, "numba.cuda": NUMBA}


@pytest.mark.parametrize("library", PROGRAMS)
def test_a_kernel_of_an_earlier_session_has_its_regions(
    library: str, tmp_path: Path, table: Callable[[str, str], None]
) -> None:
    pytest.importorskip(library, exc_type=ImportError)
    (tmp_path / "job.py").write_text(PROGRAMS[library] + SESSIONS)
    done = run([sys.executable, "job.py"], cwd=tmp_path)  # in this one CUPTI may have been used
    assert done.returncode == 0, done.stderr
    regions, unknown, uncrossed, problems = json.loads(done.stdout.splitlines()[-1])
    table(f"samples of a kernel from an earlier session, {library}", str(regions))
    assert unknown == [""] and uncrossed == [], (unknown, uncrossed, problems)
    assert regions.get("first", 0) > 1000 and regions.get("second", 0) > 1000, (regions, problems)
