"""Bounded reading of untrusted files: no file makes kscope take more memory than the machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ..errors import FormatError
from . import memory

MAX_FILE_BYTES = 256 << 20
"""Largest file that is read at once; parsed, it may take twenty times as much memory."""
MAX_LINE_BYTES = 1 << 20
_STEP = 1 << 20


def memory_budget() -> int:
    """Bytes that a reader may allocate by default.

    Returns:
        A quarter of the smallest of physical memory, the container's limit and ``ulimit -v``.
    """
    return memory.limit() // 4


def read_bytes(path: Path, most: int = MAX_FILE_BYTES) -> bytes:
    """Read a whole file.

    Args:
        path: the file.
        most: largest accepted size, in bytes.

    Raises:
        FormatError: the file is larger; it is not read to its end.
        OSError: it cannot be read.
    """
    parts, size = [], 0
    with path.open("rb") as file:
        reported = os.fstat(file.fileno()).st_size
        while size <= most >= reported and (part := file.read(min(_STEP, most + 1 - size))):
            parts.append(part)
            size += len(part)
    if (total := max(reported, size)) > most:
        raise FormatError(f"{path}: {total:,} bytes, expected at most {most:,}; check that this is the intended file")
    return b"".join(parts)


def read_lines(path: Path) -> Iterator[str]:
    """Read a text file of any size line by line.

    Args:
        path: the file.

    Yields:
        Each line with its line ending; invalid UTF-8 becomes replacement characters.

    Raises:
        FormatError: a line has more than MAX_LINE_BYTES bytes, so the file is not text.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise FormatError(f"{path}, line {number}: more than {MAX_LINE_BYTES:,} bytes; expected a text file")
            yield line.decode("utf-8", "replace")
