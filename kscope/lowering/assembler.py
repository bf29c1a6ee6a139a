"""ptxas: where it is, and which one.

What lives here: finding it, its release and that of a text, and what caches call it. What does not: running it
(fit.py), NVIDIA's linker library, and which of them a frontend asks.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import lru_cache
from importlib import import_module
from pathlib import Path


@lru_cache
def ptxas() -> str | None:
    """Where ptxas is, by the rules of CUDA's own Python packages (wheels, conda, CUDA_HOME), else in PATH."""
    try:
        pathfinder = import_module("cuda.pathfinder")
        found: str | None = pathfinder.find_nvidia_binary_utility("ptxas")
    except (ImportError, AttributeError):  # no cuda-bindings, or a pathfinder from before it looked for programs
        found = None
    return found or shutil.which("ptxas")


@lru_cache
def release(path: str) -> int | None:
    """The CUDA release that a ptxas is of, 13 for 13.0; None where it does not say."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        return None
    found = re.search(r"release (\d+)\.", done.stdout)
    return int(found[1]) if found else None


def writer(text: str) -> int | None:
    """The CUDA release whose compiler wrote this PTX, as its first lines say; None where they do not."""
    found = re.search(r"^// Cuda compilation tools, release (\d+)\.", text, re.M)
    return int(found[1]) if found else None


def identity(path: str | None) -> str:
    """What cubins depend on that neither sources nor options say, for the keys of caches: which ptxas it is."""
    if path is None:
        return ""
    try:
        about = Path(path).stat()
    except OSError:  # gone since it was found: others assemble then
        return path
    return f"{path} {about.st_size} {about.st_mtime_ns}"
