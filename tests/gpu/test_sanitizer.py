"""compute-sanitizer over recorded kernels: its four tools find nothing.

All programs of the contract in every kernel language; and others with a pool that holds everything, and with one in
which most lanes find no room and claim in vain.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from contract import joined

from .checks import python, run

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
ERRORS, HAZARDS = "ERROR SUMMARY: 0 errors", "RACECHECK SUMMARY: 0 hazards"
CLEAN = {
    "memcheck": (MEMORY, ERRORS),
    "initcheck": (MEMORY, ERRORS),
    "synccheck": (BARRIERS, ERRORS),
    "racecheck": (BARRIERS, HAZARDS),
}
LEFT_OUT = {("gluon", "racecheck"): ["roles"]}
"""Known false positives. racecheck reports the way in which Triton hands a block's warps to its partitions at
gl.warp_specialize (words in shared memory and its own barriers) as a race. kscope's instructions do not access
shared memory (tests/unit/test_ptx_assembles.py)."""


@pytest.fixture(scope="module")
def sanitizer() -> str:
    """Its path; skips if it is not installed."""
    found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(found).exists():
        pytest.skip("needs compute-sanitizer, which comes with the CUDA toolkit")
    return found


def under(sanitizer: str, tool: str) -> tuple[str, ...]:
    """A command prefix. The driver's own libraries call unavailable functions, so API errors are not reported."""
    return (sanitizer, "--tool", tool, "--error-exitcode", "9", "--report-api-errors", "no")


def clean(done: CompletedProcess[str], tool: str) -> bool:
    """True if the tool watched the process and its children to the end and found nothing."""
    return done.returncode == 0 and CLEAN[tool][1] in done.stdout and not re.search("SUMMARY: [1-9]", done.stdout)


@pytest.mark.parametrize("name", joined.ON_GPU)
def test_compute_sanitizer_finds_nothing_in_the_contract(
    sanitizer: str, name: str, tmp_path: Path, table: Callable[[str, str], None]
) -> None:
    """A process for each tool, side by side. The libraries of nvcc are built once for all."""
    frontend = joined.load(name)
    if reason := frontend.available():
        pytest.skip(reason)
    built: dict[str, str] = {}
    if hasattr(frontend, "keep"):
        frontend.keep(tmp_path)
        built[frontend.KEPT] = str(tmp_path)

    def process(tool: str) -> CompletedProcess[str]:
        without = LEFT_OUT.get((name, tool), [])
        command = [*under(sanitizer, tool), sys.executable, "-m", "gpu.contract_process", name, *without]
        return run(command, timeout=400, **built)

    with ThreadPoolExecutor(len(CLEAN)) as pool:
        done = dict(zip(CLEAN, pool.map(process, CLEAN), strict=True))
    for tool, one in done.items():
        # the program prints its name before it runs; host backtraces are long and say nothing about a kernel
        lines = [line for line in one.stdout.splitlines() if "Host Frame" not in line]
        assert clean(one, tool), "\n".join([tool, *lines[:150], "...", *lines[-30:], one.stderr[-3000:]])
    (covered,) = re.findall(r"^covered (\d+ programs)", done["memcheck"].stdout, re.M)
    less = "".join(f"; {tool} without {', '.join(out)}" for (left, tool), out in LEFT_OUT.items() if left == name)
    table(f"compute-sanitizer over the contract, {name}", f"{covered}, {', '.join(CLEAN)}: nothing found{less}")


@pytest.mark.parametrize("tool", CLEAN)
def test_compute_sanitizer_finds_nothing(sanitizer: str, tool: str) -> None:
    done = python(CLEAN[tool][0], under=under(sanitizer, tool))
    assert clean(done, tool), done.stdout + done.stderr


@pytest.mark.parametrize("tool", ["memcheck", "synccheck"])
def test_compute_sanitizer_finds_nothing_where_lanes_leave_early(sanitizer: str, tool: str) -> None:
    pytest.importorskip("cupy")
    done = python(EARLY, under=under(sanitizer, tool))
    assert clean(done, tool), done.stdout + done.stderr
