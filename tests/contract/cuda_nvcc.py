"""nvcc on the contract's kernels, with kscope.cuh in place."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from contract.programs import State

from kscope import cuda_include
from kscope.instrument.recording import Recording
from kscope_cuda.nvcc_flags import flags

if not shutil.which("nvcc"):
    raise ImportError("needs nvcc on PATH")


def options(recording: Recording, state: State) -> tuple[str, ...]:
    """nvcc's flags for this recording; nvcc code stores every record in place."""
    if state == "plain":
        return (f"-I{cuda_include()}",)
    return tuple(
        flags(strategy=recording.strategy, records=recording.records, fill=recording.fill, clock=recording.clock)
    )


@lru_cache(256)
def compiled(source: str, arguments: tuple[str, ...], suffix: str) -> bytes:
    """nvcc's output for the source: bytes of the file with that suffix. A warning is an error."""
    with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
        unit, out = Path(folder, "contract.cu"), Path(folder, f"contract{suffix}")
        unit.write_text(source, encoding="utf-8")
        command = ["nvcc", "-std=c++14", "-Werror", "all-warnings", *arguments]
        done = subprocess.run([*command, str(unit), "-o", str(out)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return out.read_bytes()
