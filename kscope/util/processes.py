"""Processes of this machine: their numbers, and whether a number still belongs to the same process."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")


def born(pid: int) -> int:
    """Start of a process, in the kernel's ticks since boot; 0 if there is no such process."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()  # the name before may contain anything
    ended = fields[:1] in (["Z"], ["X"])
    return int(fields[19]) if len(fields) > 19 and not ended else 0


def children(pid: int) -> list[int]:
    """The processes that a process has started, by number."""
    found = []
    for folder in PROC.iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text(errors="replace")
            except OSError:
                continue
            fields = stat.rpartition(")")[2].split()
            if len(fields) > 1 and fields[1] == str(pid):
                found.append(int(folder.name))
    return sorted(found)


def boot() -> str:
    """The id of this boot; empty if it is unknown."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def is_running(pid: int, since: int, of_boot: str) -> bool:
    """True if the process that started at that time, in the boot with this id, still exists."""
    return bool(pid) and of_boot == boot() and born(pid) == since
