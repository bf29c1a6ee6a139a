"""Requests a core dump of a running program from the driver: it reads a pipe, dumps the GPU, and aborts the program.
The driver must have read the environment below when the program created its context.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..util import processes
from .tables import is_complete

ENABLE, PIPE, FILE = "CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "CUDA_COREDUMP_PIPE", "CUDA_COREDUMP_FILE"
_ON_EXCEPTION, _FLAGS = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_COREDUMP_GENERATION_FLAGS"
_MEMORY = "global", "shared", "local", "constbank"
_LEFT_OUT = "skip_nonrelocated_elf_images", *(f"skip_{one}_memory" for one in _MEMORY)
"""Parts that the driver must not dump: code without addresses, and memory, which may be all of the GPU's."""
_DEFAULT_PIPE, _DEFAULT_FILE = "corepipe.cuda.%h.%p", "core_%t_%h_%p.nvcudmp"
_POLL_S, _BEGIN_S, _GROW_S = 0.02, 120.0, 120.0
"""Seconds between two checks of the file, until it exists, and until it grows again."""


def environment(folder: Path, stem: Path) -> dict[str, str]:
    """Environment with which a program, and its children, write a core dump when a pipe is written to or a kernel
    fails.

    Args:
        folder: for the pipes; private.
        stem: of the dumps: STEM.PID.core.

    Raises:
        UsageError: a path contains %, which the driver expands.
    """
    for path in (folder, stem):
        if "%" in str(path):
            raise UsageError(f"--core: {path} contains %, which the driver expands; run it in another folder")
    return {
        ENABLE: "1",
        _ON_EXCEPTION: "1",
        PIPE: str(folder / "%p.pipe"),
        FILE: f"{stem}.%p.core",
        _FLAGS: ",".join(_LEFT_OUT),
    }


@dataclass(frozen=True)
class Target:
    """A process that dumps on request: its pipe, and the name of its dump, with * where the driver puts the time."""

    pid: int
    pipe: Path
    file: Path


def targets(pid: int) -> list[Target]:
    """The processes that dump on request: this one, or those that it started and that use the GPU.

    Raises:
        UsageError: no such process exists, it is another user's, or none dumps on request; the message says why.
    """
    if not processes.born(pid):
        raise UsageError(f"--core {pid}: there is no such process")
    enabled, found = False, list[Target]()
    for one in (pid, *_descendants(pid)):
        try:
            variables = _variables(one)
        except PermissionError:
            if one == pid:
                raise UsageError(f"--core {pid}: the process is another user's; only that user may dump it") from None
            continue
        except OSError:  # it has ended
            continue
        if variables.get(ENABLE) == "1":
            enabled = True
            found += _target(one, variables)
    if found:
        return found
    if enabled:
        raise UsageError(
            f"--core {pid}: the driver has not created its dump pipe: the program has not used the GPU yet, has dumped"
            " already, or its driver is older than CUDA 12"
        )
    raise UsageError(
        f"--core {pid}: the program was not started for a dump: start it with kscope run --core, or with {ENABLE}=1"
    )


def dump(target: Target) -> Path:
    """Request a program's dump, which ends it. Returns the complete file.

    Raises:
        UsageError: no process reads its pipe, or the driver writes no dump.
    """
    before = {path: _written(path) for path in _files(target)}
    try:
        pipe = os.open(target.pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        why = "no process reads it" if error.errno == errno.ENXIO else error.strerror
        raise UsageError(f"--core {target.pid}: cannot request a dump through {target.pipe}: {why}") from None
    with os.fdopen(pipe, "wb", buffering=0) as opened:
        opened.write(b"1")
    return _awaited(target, before)


def _awaited(target: Target, before: Mapping[Path, tuple[int, int]]) -> Path:
    until, seen = time.monotonic() + _BEGIN_S, dict[Path, tuple[int, int]]()
    while True:
        gone = not processes.born(target.pid)
        now = {path: state for path in _files(target) if (state := _written(path)) != before.get(path)}
        for path in now:
            if is_complete(path):
                return path
        if now != seen:
            seen, until = now, time.monotonic() + _GROW_S
        if gone or time.monotonic() > until:
            have = f"{next(iter(now))} is not complete" if now else f"there is no {target.file}"
            why = "the program has ended" if gone else "the driver writes nothing"
            raise UsageError(f"--core {target.pid}: {why}, and {have}: is there room on the disk?")
        time.sleep(_POLL_S)


def _target(pid: int, variables: Mapping[str, str]) -> Iterator[Target]:
    home = Path(os.readlink(processes.PROC / str(pid) / "cwd"))
    pipes = _paths(home, variables.get(PIPE) or _DEFAULT_PIPE, pid)
    for pipe in pipes.parent.glob(pipes.name):
        if stat.S_ISFIFO(pipe.stat().st_mode):
            yield Target(pid, pipe, _paths(home, variables.get(FILE) or _DEFAULT_FILE, pid))
            return


def _paths(home: Path, name: str, pid: int) -> Path:
    """A name from the driver as a path; * for the time."""
    for code, value in (("%p", str(pid)), ("%h", socket.gethostname()), ("%t", "*")):
        name = name.replace(code, value)
    return home / name


def _files(target: Target) -> list[Path]:
    return [*target.file.parent.glob(target.file.name)]


def _written(path: Path) -> tuple[int, int]:
    try:
        info = path.stat()
    except OSError:
        return 0, 0
    return info.st_mtime_ns, info.st_size


def _variables(pid: int) -> dict[str, str]:
    """The environment with which a process was started."""
    content = (processes.PROC / str(pid) / "environ").read_bytes().decode("utf-8", "surrogateescape")
    pairs = (one.partition("=") for one in content.split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def _descendants(pid: int) -> Iterator[int]:
    for child in processes.children(pid):
        yield child
        yield from _descendants(child)
