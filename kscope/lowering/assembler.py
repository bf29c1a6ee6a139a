"""Finds every ptxas on this machine, and chooses one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from ..util.cuda_home import cuda_folders

LAST = threading.local()
"""complaint: the assembler's error for this thread's last text; empty if there is none."""
_ERROR = re.compile(r"(?:\S+, )?(line \d+; )?(?:error|fatal)\s*:\s*(.+)")
Release = tuple[int, int]
"""A CUDA release, such as (13, 0)."""


@lru_cache
def installed() -> tuple[str, ...]:
    """Paths of every ptxas in NVIDIA's wheels, in CUDA_HOME or CUDA_PATH, and on PATH; the newest first."""
    found = [path for path in dict.fromkeys(map(str, _places())) if os.access(path, os.X_OK)]
    return tuple(sorted(found, key=lambda path: release(path) or (0, 0), reverse=True))


def ptxas(most: int | None = None) -> str | None:
    """The newest ptxas; None if there is none.

    Args:
        most: the newest major CUDA release that suits; None for any.
    """
    suiting = (path for path in installed() if most is None or (release(path) or (0, 0))[0] <= most)
    return next(suiting, None)


def _places() -> Iterator[Path]:
    for folder in sys.path:
        yield from sorted(Path(folder or ".", "nvidia").glob("*/bin/ptxas"))
    for folder in cuda_folders():
        yield Path(folder, "ptxas")
    for folder in os.get_exec_path():
        if path := shutil.which("ptxas", path=folder):
            yield Path(path)


@lru_cache
def release(path: str) -> Release | None:
    """The CUDA release of a ptxas; None if it does not print one."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        return None
    found = re.search(r"release (\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else None


def complaint(log: str) -> str:
    """The first error in an assembler's log."""
    found = _ERROR.search(log)
    return f"{found[1] or ''}{found[2].strip()}" if found else log.strip().partition("\n")[0]


def writer(text: str) -> int | None:
    """The major CUDA release of the compiler that wrote a PTX text, from its first lines; None without one."""
    found = re.search(r"^// Cuda compilation tools, release (\d+)\.", text, re.M)
    return int(found[1]) if found else None


def identity(path: str | None) -> str:
    """A word for cache keys that differs between any two ptxas; empty without one."""
    if path is None:
        return ""
    try:
        about = Path(path).stat()
    except OSError:  # removed meanwhile
        return path
    return f"{path} {about.st_size} {about.st_mtime_ns}"


def describe() -> str:
    """A description of the ptxas in use, and of the others; empty without one."""
    named = [f"{path} ({'.'.join(map(str, release(path) or ('unknown release',)))})" for path in installed()]
    return f"{named[0]}{f', newest of {len(named)}' if named[1:] else ''}" if named else ""
