"""Host memory that this process may use: the machine's, its cgroups' (v1 and v2) and ``ulimit -v``."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "inactive_file")
"""Files with the limit and the usage, and the line of memory.stat with page cache that can be dropped at once."""


def limit() -> int:
    """The most bytes that this process can ever have."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        limits.append(address_space)
    return min(limits + [most for most, _ in _groups()])


def available() -> int:
    """Bytes that this process can have now without swapping or being killed."""
    left = [most - used for most, used in _groups()]
    kilobytes = _lines(PROC / "meminfo").get("MemAvailable:", "")
    if kilobytes.isdecimal():
        left.append(int(kilobytes) << 10)
    return max(0, min(left, default=limit()))


def _groups() -> Iterator[tuple[int, int]]:
    """(limit, usage) of every cgroup above this process that has a limit."""
    for line in _text(PROC / "self" / "cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            root, names = CGROUPS, _V2
        elif "memory" in controllers.split(","):
            root, names = CGROUPS / "memory", _V1
        else:
            continue
        group = root / path.lstrip("/")
        # in a container, the mounted tree may begin at its own group
        for folder in (group, *group.parents):
            if (most := _text(folder / names[0])).isdecimal():  # else "max"
                used, cache = _text(folder / names[1]), _lines(folder / "memory.stat").get(names[2], "")
                yield int(most), int(used or 0) - int(cache or 0)
            if folder == root:
                break


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _lines(path: Path) -> dict[str, str]:
    """The second word of each line by the first."""
    return dict(words[:2] for line in _text(path).splitlines() if len(words := line.split()) > 1)


@contextmanager
def uncollected() -> Generator[None]:
    """A context manager for work that creates many objects and drops none: Python's collector, which would scan all of
    them again and again, waits.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
