"""The command line on a GPU: demo, doctor and run, each in a new process."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import kscope
from kscope.instrument import registry

from .checks import CLOCKS, run

Table = Callable[[str, str], None]


def _kscope(*argv: str, cwd: Path) -> str:
    """The output of the command; it must succeed."""
    done = run([sys.executable, "-m", "kscope", *argv], cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _importable(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True


def test_the_demo_records_on_the_gpu(tmp_path: Path) -> None:
    message = _kscope("demo", "-o", "d.pftrace", cwd=tmp_path)
    assert "a Triton matmul on this GPU" in message
    trace = kscope.load(tmp_path / "kscope-demo.kscope")
    assert {problem.kind for problem in trace.problems} <= CLOCKS
    # 8 warps of 64 blocks: the loop, the epilogue, and two regions in each of 16 iterations
    assert len(trace) == 64 * 8 * (2 + 2 * 16)


def test_the_doctor_measures_the_timer_and_a_region(tmp_path: Path, table: Table) -> None:
    message = _kscope("doctor", cwd=tmp_path)
    found = {line[4:14].strip(): line for line in message.splitlines()}
    absent = {name: entry.dsl for name, entry in registry.TABLE.items() if not _importable(entry.dsl)}
    for what, line in found.items():
        expected = (
            f"--  {what:10} {absent[what]} is not installed: pip install " if what in absent else f"ok  {what:10} "
        )
        assert line.startswith(expected), message
    assert {*registry.TABLE, "gpu 0", "timer", "region"} <= {*found}, message
    assert re.search(r"ticks every \d+ ns", found["timer"])
    cycles = [int(number) for number in re.findall(r"(\d+) cycles", found["region"])]
    assert len(cycles) == 2
    assert all(0 < number < 200 for number in cycles)
    table("kscope doctor", found["region"][14:])


def test_an_unchanged_script_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import torch, triton, triton.language as tl, kscope, sys\n"
        "@triton.jit\n"
        "def double(x, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    with kscope.region('double'):\n"
        "        tl.store(x + at, tl.load(x + at) * 2)\n"
        "x = torch.ones(4096, device='cuda')\n"
        "double[(4,)](x, BLOCK=1024, num_warps=4)\n"
        "assert bool((x == 2).all())\n"
        "sys.exit(0)\n"
    )
    assert "16 records" in _kscope("run", "--strict", "job.py", cwd=tmp_path)
