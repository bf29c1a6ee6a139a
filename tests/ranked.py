"""Ranks of a job under `kscope run --ranks run`, as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from waiting import PATIENCE_S

SCRIPT = """
import os, sys, time
import kscope, kscope_sim
rank = int(os.environ["RANK"])
print("began", rank, time.time_ns(), flush=True)
def kernel(warp):
    with kscope.region("work"):
        warp.work(1000 + 1000 * rank)
kscope_sim.launch(kernel, grid=1 + rank, block=32)
if rank == int(sys.argv[1]):
    raise SystemExit(3)
"""


def started(
    folder: Path, rank: int, world: int, *flags: str, fails: int = -1, script: str = SCRIPT
) -> subprocess.Popen[str]:
    """One rank; the one that is named in `fails` ends with exit code 3."""
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "kscope", "run", "--ranks", "run", *flags, "train.py", str(fails)]
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment, **pipes)


def finished(*ranks: subprocess.Popen[str]) -> list[tuple[str, str, int]]:
    """The stdout and stderr of each, and its exit code."""
    return [(*one.communicate(timeout=PATIENCE_S), one.returncode) for one in ranks]
