"""nvcc on the contract's kernels, with kscope.cuh in place.

What lives here: the command line that a program's recording becomes. What does not: kernels (cuda_programs.py),
running what comes out (frontend_cuda.py, frontend_cuda_ptx.py).
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from contract import interpreted
from contract.cuda_programs import FUNCTIONS

import kscope
from kscope.capture import ModuleMeta
from kscope.recording import Recording
from kscope.strategies import AllThreads, Elected, Lane0Warp0, TargetWarp
from kscope_cuda.described import describe


def missing() -> str | None:
    """Why nothing can be compiled here."""
    return None if shutil.which("nvcc") else "needs nvcc"


def defines(recording: Recording) -> tuple[str, ...]:
    """What compiles the header for these options."""
    strategy = recording.strategy
    words = {AllThreads(): "AllThreads", Elected(): "Elected", Lane0Warp0(): "Lane0Warp0"}
    word = f"TargetWarp<{', '.join(map(str, strategy.warps))}>" if isinstance(strategy, TargetWarp) else words[strategy]
    records = 256 if recording.records == "auto" else recording.records
    return (
        "-DKSCOPE=1",
        # nvcc takes a comma in an option for the end of it, unless a backslash says otherwise
        f"-DKSCOPE_STRATEGY=kscope::{word}".replace(",", "\\,"),
        f"-DKSCOPE_RECORDS={records}",
        f"-DKSCOPE_CLOCK={recording.clock}",
        f"-DKSCOPE_FILL={recording.fill}",
    )


@lru_cache(256)
def compiled(source: str, options: tuple[str, ...], suffix: str) -> bytes:
    """What nvcc makes of the source: bytes of the file with that suffix. A warning is an error."""
    with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
        unit, out = Path(folder, "contract.cu"), Path(folder, f"contract{suffix}")
        unit.write_text(source)
        command = ["nvcc", "-std=c++14", "-Werror", "all-warnings", f"-I{kscope.cuda_include()}", *options]
        done = subprocess.run([*command, str(unit), "-o", str(out)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return out.read_bytes()


def described(data: bytes) -> tuple[ModuleMeta, ...]:
    """What a file says of itself, with the kernels called as in the contract."""
    names = {theirs: ours for ours, theirs in FUNCTIONS.items()}
    return tuple(interpreted.renamed(module, names) for module in describe(data))
