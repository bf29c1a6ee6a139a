"""Reading files of strangers within bounds: no file makes kscope take more memory than the machine can give.

What lives here: how much that is, and reading whole files and lines up to it. What does not: what stands in the files.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from ..errors import FormatError

MAX_FILE_BYTES = 256 << 20
"""Bytes of a file that is read at once; parsed, it may take twenty times as much."""
MAX_LINE_BYTES = 1 << 20
_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_STEP = 1 << 20


def memory_budget() -> int:
    """Bytes that a reader may take without being asked: a quarter of what this process can have, by the machine's
    memory, its container's limit and its own (ulimit -v)."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    if own != resource.RLIM_INFINITY:
        limits.append(own)
    for path in map(Path, _GROUPS):
        text = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
        if text.isdecimal():  # else "max"
            limits.append(int(text))
    return min(limits) // 4


def read_bytes(path: Path, most: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of a file. Raises FormatError for one of more than `most` bytes, which is not read, OSError."""
    parts, size = [], 0
    with path.open("rb") as file:
        told = os.fstat(file.fileno()).st_size
        while size <= most >= told and (part := file.read(min(_STEP, most + 1 - size))):
            parts.append(part)
            size += len(part)
    if max(told, size) > most:
        raise FormatError(
            f"{path}: {max(told, size):,} bytes, expected at most {most:,}; is it the file that you mean?"
        )
    return b"".join(parts)


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file of any size, each with its end. Raises FormatError, with its number, for a line of
    more than MAX_LINE_BYTES bytes: such a file is no text; OSError."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise FormatError(f"{path}, line {number}: more than {MAX_LINE_BYTES:,} bytes; expected a text file")
            yield line.decode("utf-8", "replace")
