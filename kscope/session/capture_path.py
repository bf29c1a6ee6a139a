"""Where a session's capture goes: checked before the run, never over the last good one after a failure.

What lives here: paths. What does not: the file (capture.py writes it whole or not at all).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ..errors import UsageError

SUFFIX = ".kscope"


def check(path: str | os.PathLike[str]) -> Path:
    """The path, made absolute, where a capture can be written. Raises UsageError that says why it cannot."""
    typed, target = os.fspath(path), Path(path).absolute()
    if target.suffix != SUFFIX:
        raise UsageError(
            f"profile({typed!r}): a capture's name ends in {SUFFIX}; prof.trace.export(path) writes other formats"
        )
    if target.is_dir():
        raise UsageError(f"profile({typed!r}): that is a folder; name a file in it")
    if not target.parent.is_dir():
        raise UsageError(f"profile({typed!r}): the folder {target.parent} does not exist: mkdir -p {target.parent}")
    if target.exists() and not os.access(target, os.W_OK):
        raise UsageError(f"profile({typed!r}): the file is there and may not be overwritten")
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".kscope-"):
            pass
    except OSError as error:
        raise UsageError(f"profile({typed!r}): nothing can be written to {target.parent}: {error.strerror}") from error
    return target


def failed(path: Path) -> Path:
    """Where what was recorded goes when the run failed: beside `path`, which keeps the last good capture."""
    return path.with_name(f"{path.stem}.failed{SUFFIX}")
