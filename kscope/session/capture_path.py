"""Where a session's capture is saved: checked before the run; a failed run never overwrites the last good capture."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ..errors import UsageError

SUFFIX = ".kscope"


def check(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a capture that can be written.

    Raises:
        UsageError: it cannot be written; the message says why.
    """
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
        raise UsageError(f"profile({typed!r}): the file exists and is not writable")
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".kscope-"):
            pass
    except OSError as error:
        raise UsageError(f"profile({typed!r}): nothing can be written to {target.parent}: {error.strerror}") from error
    return target


def failed(path: Path) -> Path:
    """The path for the capture of a failed run, beside `path`, which keeps the last good capture."""
    return path.with_name(f"{path.stem}.failed{SUFFIX}")
