"""Atomic file replacement."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def target(path: str | os.PathLike[str]) -> Path:
    """The absolute path of the file that writing to `path` changes: symbolic links are followed."""
    return Path(os.path.realpath(path))


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """Open a temporary file that replaces `path` atomically when the block succeeds.

    Args:
        path: the file to replace; of a symbolic link, its target. The temporary file lies in the same folder. Pipes and
            devices are written directly.

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
    temporary = path.with_name(f".kscope-{os.getpid()}-{threading.get_ident()}.part")
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
