"""`kscope trust perturb SCRIPT` on a GPU: both builds, with their launch shapes and times."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .checks import run

Table = Callable[[str, str], None]

JOB = """
import torch, triton, triton.language as tl, kscope
@triton.jit
def scale(x, rounds, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(rounds):
        with kscope.region("load"):
            a = tl.load(x + at)
        with kscope.region("store"):
            tl.store(x + at, a * 1.5)
x = torch.ones(1 << 20, device="cuda")
for _ in range(5):
    scale[(1024,)](x, 16, BLOCK=1024, num_warps=4)
torch.cuda.synchronize()
print("done")
"""


@pytest.mark.parametrize("selected", [(), ("--kinds=load,store",)], ids=["annotated", "not annotated"])
def test_one_command_shows_the_effect_of_marks_on_a_kernel(
    tmp_path: Path, table: Table, selected: tuple[str, ...]
) -> None:
    (tmp_path / "job.py").write_text(re.sub(r" *with kscope.*\n    ( .*)", r"\1", JOB) if selected else JOB)
    command = [sys.executable, "-m", "kscope", "trust", "perturb", *selected, "--json", "--kernel", "scale", "job.py"]
    done = run(command, cwd=tmp_path, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    [kernel] = report["kernels"]
    off, on = kernel["off"], kernel["on"]
    assert kernel["threads"] == 128
    assert on["instructions"] > off["instructions"] > 10
    assert on["registers"] >= off["registers"] > 0
    assert 0 < on["warps_per_sm"] <= off["warps_per_sm"]
    reported = (
        f"{off['registers']} -> {on['registers']} registers, {off['instructions']} -> {on['instructions']} instructions"
    )
    if shutil.which("ncu") and not any("ncu measured nothing" in problem for problem in report["problems"]):
        assert kernel["on_executed"] > kernel["off_executed"] > 1024 * 4 * 16
        assert 0 < kernel["off_ns"] < 1e7
        assert 0 < kernel["on_ns"] < 1e7
        reported += f", {kernel['off_ns'] / 1e3:.2f} -> {kernel['on_ns'] / 1e3:.2f} us ({kernel['slowdown']:+.1%})"
    table(" ".join(["kscope trust perturb", *selected]), reported)
