"""compute-sanitizer over recorded kernels: its four tools find nothing.

The programs run with a pool that holds everything, and with one in which most lanes find no room and claim in vain.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .checks import python

MEMORY = """
out = k.ints(2000)
for pool in (None, 2 << 20):
    with kscope.profile(pool=pool) as prof:
        k.four[(2000,)](out, num_warps=4)
        k.loop[(50,)](out, 300, num_warps=2)
        torch.cuda.synchronize()
    assert pool or not sum(device.lost for device in prof.capture.devices)
    print(len(prof.trace))
"""

# regions around and between barriers of a block; racecheck is slow, so there are few of them
BARRIERS = """
blocks, rows = 16, 6
x = torch.randn(blocks * rows * k.ROW).cuda()
out = torch.zeros(blocks, device="cuda")
expected = x.cpu().reshape(blocks, -1).sum(1)
for strategy, lanes in ((kscope.Elected(), 4), (kscope.AllThreads(), 128)):
    for pool in (None, 2 << 20):
        with kscope.profile(strategy=strategy, pool=pool) as prof:
            k.summed[(blocks,)](x, out, rows, num_warps=4)
            torch.cuda.synchronize()
        torch.testing.assert_close(out.cpu(), expected, rtol=1e-3, atol=1e-2)
        found = len(prof.trace)
        lost = sum(device.lost for device in prof.capture.devices)
        assert (found + lost * (rows + 1)) == blocks * lanes * (rows + 1), (found, lost)
        assert (lost > 0) == (pool is not None and lanes == 128), lost
"""
# blocks, warps and lanes that leave early
EARLY = """
import cupy
from gpu import torture_sources as t
for pool in (None, 2 << 20):
    out = cupy.zeros(1, cupy.int32)
    with kscope.profile(pool=pool) as prof:
        t.kernel(t.EARLY, "early")((300,), (128,), (out,))
        cupy.cuda.Device().synchronize()
    assert int(out[0]) == 200 * 96 + 100 * 48
    assert len(prof.trace) == 200 * 3 + 100 * 3 or pool
"""
CLEAN = {
    "memcheck": (MEMORY, "ERROR SUMMARY: 0 errors"),
    "initcheck": (MEMORY, "ERROR SUMMARY: 0 errors"),
    "synccheck": (BARRIERS, "ERROR SUMMARY: 0 errors"),
    "racecheck": (BARRIERS, "RACECHECK SUMMARY: 0 hazards"),
}


@pytest.mark.parametrize("tool", CLEAN)
def test_compute_sanitizer_finds_nothing(tool: str) -> None:
    code, summary = CLEAN[tool]
    _clean(tool, code, summary)


@pytest.mark.parametrize("tool", ["memcheck", "synccheck"])
def test_compute_sanitizer_finds_nothing_where_lanes_leave_early(tool: str) -> None:
    pytest.importorskip("cupy")
    _clean(tool, EARLY, "ERROR SUMMARY: 0 errors")


def _clean(tool: str, code: str, summary: str) -> None:
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(sanitizer).exists():
        pytest.skip("needs compute-sanitizer, which comes with the CUDA toolkit")
    done = python(code, under=(sanitizer, "--tool", tool, "--error-exitcode", "9", "--report-api-errors", "no"))
    assert done.returncode == 0 and summary in done.stdout, done.stdout + done.stderr
