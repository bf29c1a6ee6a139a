"""Checks if ptxas accepts a text. Results are cached in .cache/ptxas by the hash of the text."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path

from kscope.lowering import assembler

STORE = Path(__file__).resolve().parents[2] / ".cache" / "ptxas"


@cache
def ptxas(version: str = "") -> str | None:
    """Triton's ptxas, else the newest that kscope finds, that accepts this version of PTX; None without one."""
    spec = importlib.util.find_spec("triton")
    places = [Path(place) / "backends" / "nvidia" / "bin" for place in (spec and spec.submodule_search_locations) or ()]
    tools = [str(place / name) for place in places for name in ("ptxas", "ptxas-blackwell") if (place / name).exists()]
    tools += assembler.installed()
    return next((tool for tool in tools if not version or _knows(tool, version)), None)


def _knows(tool: str, version: str) -> bool:
    """True if it takes a module that is empty but for its version."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.ptx"
        source.write_text(f".version {version}\n.target sm_80\n.address_size 64\n")
        command = [tool, "-arch=sm_80", str(source), "-o", str(Path(folder) / "k.cubin")]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@cache
def _version(tool: str) -> str:
    return subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout


def complaint(text: str, arch: str) -> str:
    """ptxas's errors and warnings for `text` and sm_<arch>, "" if there are none. Call ptxas() first."""
    version = re.search(r"^\s*\.version\s+(\S+)", text, re.M)
    tool = ptxas(version[1]) if version else ptxas()
    assert tool is not None, f"no ptxas knows {version and version[0]}"
    key = sha256("\0".join([text, arch, _version(tool)]).encode()).hexdigest()
    kept = STORE / key
    if kept.exists():
        return kept.read_text()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "k.ptx"
        source.write_text(text)
        command = [tool, f"-arch=sm_{arch}", str(source), "-o", str(Path(folder) / "k.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    message = done.stdout + done.stderr
    answer = message if done.returncode or message.strip() else ""
    STORE.mkdir(parents=True, exist_ok=True)
    kept.write_text(answer)
    return answer
