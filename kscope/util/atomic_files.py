"""Atomic file replacement."""

from __future__ import annotations

import glob
import os
import platform
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..errors import UsageError

_IDLE_S = 60.0
"""A temporary file of a dead process is removed after this time without a write."""


def target(path: str | os.PathLike[str]) -> Path:
    """The absolute path of the file that writing to `path` changes: symbolic links are followed."""
    return Path(os.path.realpath(path))


def writable(path: str | os.PathLike[str]) -> Path:
    """The path of a file to write. Raises UsageError if its folder does not exist, or if it is a folder."""
    path = Path(path)
    folder = target(path).parent
    if not folder.is_dir():
        raise UsageError(f"{str(path)!r}: the folder {str(folder)!r} does not exist; create it first")
    if path.is_dir():
        raise UsageError(f"{str(path)!r} is a folder: give the name of a file")
    return path


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """Open a temporary file that replaces `path` atomically when the block succeeds.

    Args:
        path: the file to replace; for a symbolic link, its target. The temporary file is in the same folder. Pipes
            and devices are written directly.

    Yields:
        The temporary file, opened for writing. If the block raises, it is deleted and `path` stays as it was.

    Raises:
        OSError: the folder is missing or not writable, or the disk is full; it names `path`.
    """
    path = target(path)
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:
            yield file
        return
    remove_stale(path.parent)
    temporary = path.with_name(f"{_prefix()}{os.getpid()}-{threading.get_ident()}.part")
    try:
        with open(temporary, "wb") as file:
            yield file
        os.replace(temporary, path)
    except OSError as error:
        if error.filename in (None, temporary, os.fspath(temporary)):  # a full disk names no file
            error.filename, error.filename2 = os.fspath(path), None
        raise
    finally:
        temporary.unlink(missing_ok=True)


def remove_stale(folder: Path) -> None:
    """Remove temporary files of this machine's dead processes, which were killed while they wrote."""
    if os.name != "posix":  # elsewhere os.kill() may end the process
        return
    with suppress(OSError):
        for file in folder.glob(f"{glob.escape(_prefix())}*.part"):
            pid = file.name.removeprefix(_prefix()).partition("-")[0]
            if pid.isdecimal() and not _is_running(int(pid)):
                with suppress(OSError):
                    if time.time() - file.stat().st_mtime > _IDLE_S:
                        file.unlink()


def _prefix() -> str:
    return f".kscope-{platform.node()}-"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
