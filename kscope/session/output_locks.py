"""Claims output files for one process of a job, as ranks that write the same path would overwrite each other's file. A
claim is a lock on a hidden file beside the output, held until the process ends.
"""

from __future__ import annotations

import atexit
import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from errno import EACCES, EAGAIN
from hashlib import sha256
from pathlib import Path

from ..errors import UsageError
from ..util.atomic_files import target
from .launcher import place

_held: dict[tuple[int, Path], int] = {}
"""Descriptors of claims, by process and file: a forked child has none."""


def claim(files: Iterable[Path]) -> None:
    """Claim files for this process until it ends. Does nothing without a launcher.

    The kernel releases the locks of dead processes, and forked children do not inherit them.

    Raises:
        UsageError: another live process of the job has claimed one.
    """
    here = place()
    if here.world < 2:
        return
    for file in files:
        lock = _beside(file)
        if (os.getpid(), lock) not in _held and (owner := _lock(lock, f"rank {here.rank}")):
            raise UsageError(
                f"{str(file)!r}: {owner} of this job writes this file; %r in a name is the rank, as in "
                f"{f'{file.stem}.%r{file.suffix}'!r}"
            )


def _beside(file: Path) -> Path:
    """The file to lock, with a name of fixed length."""
    file = target(file)
    return file.with_name(f".kscope-{sha256(os.fsencode(file.name)).hexdigest()[:16]}.claim")


def _lock(path: Path, name: str) -> str:
    """Lock a file for this process. Returns its owner, or "" if the lock was taken or locks do not work here."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            return ""  # the checks of the output report unwritable paths
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, 200, 0).decode("utf-8", "replace") or "another process"
            os.close(descriptor)
            return owner if error.errno in (EACCES, EAGAIN) else ""  # the file system may have no locks
        try:
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                break
        except FileNotFoundError:
            pass
        os.close(descriptor)  # its owner deleted it meanwhile
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{name} (process {os.getpid()} on {os.uname().nodename})".encode(), 0)
    _held[os.getpid(), path] = descriptor
    return ""


@atexit.register
def _delete() -> None:
    """Delete the files that this process holds; those of killed processes stay, unlocked."""
    for process, path in _held:
        if process == os.getpid():
            with suppress(OSError):
                path.unlink()
