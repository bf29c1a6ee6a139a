"""The folder of this user's pool files: private, in memory, /dev/shm/kscope-UID or KSCOPE_SURVIVE_FOLDER."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...errors import FormatError, UsageError
from .keeper_socket import forget
from .pool_layout import SUFFIX
from .pool_reading import Pool, open_pool

VARIABLE = "KSCOPE_SURVIVE_FOLDER"
DEFAULT_BYTES = 256 << 20
_LITTLE = 256 << 20
_MEMORY = Path("/dev/shm")
_NAME = rf"(\d+)-(\d+)-(\w+){re.escape(SUFFIX)}"


def folder() -> Path:
    """The folder, which may not exist yet."""
    given = os.environ.get(VARIABLE)
    return Path(given) if given else _MEMORY / f"kscope-{os.geteuid()}"


def private_folder() -> Path:
    """The folder, created if necessary.

    Raises:
        UsageError: it cannot be created, belongs to another user, or others may enter it.
    """
    path = folder()
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        info = path.lstat()
    except OSError as error:
        raise UsageError(
            f"survive: the folder {path} cannot be made ({error.strerror}); set {VARIABLE} to one in memory"
        ) from None
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077:
        raise UsageError(f"survive: {path} is not a private folder of yours (mode 0700): remove it, or set {VARIABLE}")
    return path


def default_bytes() -> int:
    """The default size of a pool: 256 MiB, and at most a quarter of the free space in the folder's file system; of the
    machine's memory, if that is little and another process can hold memory outside any folder.
    """
    from ...util import memory
    from . import held_memory

    try:
        found = os.statvfs(folder())
    except OSError:
        return DEFAULT_BYTES
    free = found.f_bavail * found.f_frsize
    if free < _LITTLE and held_memory.is_possible():
        free = memory.available()
    return min(DEFAULT_BYTES, free // 4)


def name_of(pid: int, epoch: int, device: str) -> str:
    """The name of a process's file for a session and a device, such as gpu0."""
    return f"{pid}-{epoch}-{device}{SUFFIX}"


def of_process(pid: int) -> list[Path]:
    """The files of a process, by session and device."""
    found = [(int(one[2]), path) for path in _files() if (one := re.fullmatch(_NAME, path.name)) and int(one[1]) == pid]
    return [path for _, path in sorted(found)]


def pools() -> Iterator[Pool]:
    """All files of this user that can be read, oldest first."""
    for path in _files():
        try:
            yield open_pool(path)
        except (FormatError, UsageError, OSError):
            continue


def remove_ended(keep: int = 0) -> list[Path]:
    """Remove the files of sessions that have ended, and of dead processes all but the newest `keep`.

    Returns:
        The removed files.
    """
    dead = [pool.path for pool in pools() if pool.has_ended or not pool.is_running()]
    gone = dead[: max(0, len(dead) - keep)]
    for path in gone:
        path.unlink(missing_ok=True)
        forget(path)
    return gone


def _files() -> list[Path]:
    found = []
    with suppress(OSError):  # there is no folder
        for path in [one for one in folder().iterdir() if one.name.endswith(SUFFIX)]:
            try:
                found.append((path.stat().st_mtime_ns, path))
            except OSError:  # removed meanwhile, or held by a process that has ended
                if path.is_symlink():
                    path.unlink(missing_ok=True)
    return [path for _, path in sorted(found)]
