"""Memory for a pool file whose folder has too little room: a file without a name, which `kscope run` holds open."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from ...errors import UsageError

_HOLDER_TIMEOUT_S, _POLL_S = 10.0, 0.01


@dataclass
class _Holder:
    """The process that holds memory for this process; 0 for none."""

    pid: int = 0


_HOLDER = _Holder()


def held_by(pid: int) -> None:
    """Set the process that holds the memory which this process offers."""
    _HOLDER.pid = pid


def is_possible() -> bool:
    """True if a process holds the memory which this process offers."""
    return _HOLDER.pid != 0 and _HOLDER.pid == os.getppid()


def offer(path: Path) -> int:
    """New memory without a name, with a link to it at `path`; returns its descriptor. Raises OSError.

    Such a file (memfd) lives as long as a process has it open. The link at `path` names this process's descriptor until
    `kscope run` opens the file and points the link to a descriptor that outlives the program. Readers follow the link.
    """
    file = os.memfd_create("kscope", os.MFD_CLOEXEC)
    os.fchmod(file, 0o600)
    try:
        path.symlink_to(_link(file))
    except OSError:
        os.close(file)
        raise
    return file


def wait(path: Path) -> None:
    """Wait until another process holds the memory at `path`. Raises UsageError."""
    until = time.monotonic() + _HOLDER_TIMEOUT_S
    while os.readlink(path).startswith(f"/proc/{os.getpid()}/"):
        if time.monotonic() > until:
            path.unlink()
            raise UsageError(
                f"survive: {path.parent} has too little room, and kscope run (process {_HOLDER.pid}), which would hold"
                " memory instead, did not respond; is it suspended? Set KSCOPE_SURVIVE_FOLDER to a folder of another"
                " file system in memory"
            )
        time.sleep(_POLL_S)


def take(path: Path) -> int | None:
    """Hold the memory that a child offers at `path`. Returns the descriptor; None for a file, or if already held."""
    try:
        target = os.readlink(path)
        if target.startswith(f"/proc/{os.getpid()}/"):
            return None
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    ours = path.with_name(f"{path.name}.{os.getpid()}")
    ours.unlink(missing_ok=True)
    ours.symlink_to(_link(file))
    ours.replace(path)
    return file


def _link(file: int) -> str:
    return f"/proc/{os.getpid()}/fd/{file}"
