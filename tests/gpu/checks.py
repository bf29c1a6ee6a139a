"""Helpers of several device tests: check a trace, run code in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import kscope

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT / path) for path in ("", "frontends", "runtime", "tests")]
BEGIN = """
import sys, torch, kscope
from gpu import kernels as k
"""
CLOCKS = {"clock", "rate"}
"""Problems that are not about records: a launch of microseconds contains little information on the SM's clock."""


def doubts(trace: kscope.Trace) -> list[str]:
    """Problems of the trace. Ignores those of libraries armed by other tests in this process with other options."""
    return [f"{one.kind}: {one.text}" for one in trace.problems if one.kind not in {"options", "occupancy", *CLOCKS}]


def sync() -> None:
    """Wait for the current device."""
    import torch

    torch.cuda.synchronize()


def run(command: list[str], *, cwd: Path = ROOT, timeout: float = 120, **env: str) -> subprocess.CompletedProcess[str]:
    """A process that finds kscope and these tests; more of its environment as keywords."""
    paths = os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": paths, **env},
        cwd=cwd,
        text=True,
        capture_output=True,
        timeout=timeout,
        check=False,
    )


def python(code: str, *arguments: object, under: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the kernels of these tests at hand; it has two minutes, ten `under` another one."""
    command = [*under, sys.executable, "-c", BEGIN + code, *map(str, arguments)]
    return run(command, timeout=600 if under else 120, **env)
