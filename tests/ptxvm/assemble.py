"""Does ptxas take a text? Answers are kept in .cache/ptxas by the hash of what was asked."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path

STORE = Path(__file__).resolve().parents[2] / ".cache" / "ptxas"


@cache
def ptxas() -> str | None:
    """Triton's own ptxas, else the one on PATH, else None."""
    spec = importlib.util.find_spec("triton")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        found = Path(place) / "backends" / "nvidia" / "bin" / "ptxas"
        if found.exists():
            return str(found)
    return shutil.which("ptxas")


@cache
def _version(tool: str) -> str:
    return subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout


def complaint(text: str, arch: str) -> str:
    """What ptxas says against `text` for sm_<arch>, "" where it takes it without a warning."""
    tool = ptxas()
    assert tool is not None, "ask ptxas() first"
    key = sha256("\0".join([text, arch, _version(tool)]).encode()).hexdigest()
    kept = STORE / key
    if kept.exists():
        return kept.read_text()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "k.ptx"
        source.write_text(text)
        command = [tool, f"-arch=sm_{arch}", str(source), "-o", str(Path(folder) / "k.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    answer = said if done.returncode or said.strip() else ""
    STORE.mkdir(parents=True, exist_ok=True)
    kept.write_text(answer)
    return answer
