"""The path of a session's capture: checked before the run; a failed run never overwrites the last good capture."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ..errors import UsageError
from ..util.atomic_files import target
from .launcher import expanded

SUFFIX = ".kscope"


def check(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a capture that can be written, with %r as the rank and %p as the process id.

    Raises:
        UsageError: it cannot be written; the message has the reason.
    """
    typed = os.fspath(path)
    file = Path(expanded(typed)).absolute()
    folder = target(file).parent
    if file.suffix != SUFFIX:
        raise UsageError(
            f"profile({typed!r}): a capture's name ends in {SUFFIX}; prof.trace.export(path) writes other formats"
        )
    if file.is_dir():
        raise UsageError(f"profile({typed!r}): this is a folder; name a file in it")
    if not folder.is_dir():
        raise UsageError(f"profile({typed!r}): the folder {folder} does not exist: mkdir -p {folder}")
    if file.exists() and not file.is_file():
        raise UsageError(f"profile({typed!r}): this is not a regular file; give another name")
    if file.exists() and not os.access(file, os.W_OK):
        raise UsageError(f"profile({typed!r}): the file exists and is not writable")
    try:
        with tempfile.TemporaryFile(dir=folder):  # without a name: Ctrl-C leaves no file
            pass
    except OSError as error:
        raise UsageError(f"profile({typed!r}): cannot write to {folder}: {error.strerror}") from error
    return file


def failed_path(path: Path) -> Path:
    """The path for the capture of a failed run, beside `path`, which keeps the last good capture."""
    return path.with_name(f"{path.stem}.failed{SUFFIX}")
