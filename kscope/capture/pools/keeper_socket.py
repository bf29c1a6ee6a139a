"""The socket between a reader of a pool file and its keeper, the process that keeps the memory on the device."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .pool_reading import Pool

if TYPE_CHECKING:
    import socket

_SUFFIX, _DONE = ".look", b"k"
_ANSWER_TIMEOUT_S = 5.0
"""Seconds that a reader waits for an answer: the keeper may copy gigabytes, or still create its context."""
_POLL_S = 0.02


def listen(path: Path) -> socket.socket:
    """The socket of a pool file's keeper."""
    import socket  # also below: most pool files have none

    forget(path)
    made = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        made.bind(f"/proc/self/fd/{folder}/{path.name}{_SUFFIX}")  # the full path may be too long
    finally:
        os.close(folder)
    made.listen()
    return made


def forget(path: Path) -> None:
    """Remove a pool file's socket."""
    path.with_name(path.name + _SUFFIX).unlink(missing_ok=True)


def answer(reader: socket.socket) -> None:
    """Notify a reader that the file is up to date. The reader may have exited."""
    with suppress(OSError):
        reader.sendall(_DONE)


def refresh(pool: Pool) -> str:
    """Let the keeper, if any, copy the device's memory to the file. Returns an error message; empty for success."""
    if not pool.is_copy or pool.state["is_final"]:
        return ""
    until = time.monotonic() + _ANSWER_TIMEOUT_S
    while time.monotonic() < until and not pool.state["is_final"]:
        if _asked(pool.path):
            return ""
        time.sleep(_POLL_S)  # it starts, or copies for the last time
    if pool.state["is_final"]:
        return ""
    return "the process that keeps the records does not answer: this is its last copy, if there is one"


def _asked(path: Path) -> bool:
    import socket

    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.settimeout(_ANSWER_TIMEOUT_S)
            made.connect(f"/proc/self/fd/{folder}/{path.name}{_SUFFIX}")
            return made.recv(1) == _DONE
    except OSError:
        return False
    finally:
        os.close(folder)
