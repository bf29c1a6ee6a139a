"""Host memory that grows without being copied: one reservation of address space per session, filled from the front."""

from __future__ import annotations

import mmap

import numpy as np
import numpy.typing as npt

from kscope.capture import layout
from kscope.util import memory

Lines = npt.NDArray[np.uint32]
_WORDS = layout.UNIT // 4
_LEAST = 64 << 20
_LOOK = (64 << 20) // layout.UNIT
"""Lines between two looks at how much memory is left."""
_SHARE, _KEPT = 2, 8
"""A session takes at most 1/2 of the memory, and stops when less than 1/8 of it is available: saving and decoding need
memory too."""
_NORESERVE = 0x4000  # of linux/mman.h; Python has no name for it before 3.13


class Arena:
    """Lines of 64 bytes. It reserves address space for half of the memory that this process may use; a page costs
    memory when it is written. The memory is freed with the arena and the last of its lines.
    """

    def __init__(self) -> None:
        self._room: Lines | None = None
        self._used = self._next_look = 0
        self._full = ""

    def take(self, count: int) -> Lines:
        """Room for `count` more lines, to be filled by the caller.

        Raises:
            MemoryError: too little memory is left. From then on the arena is full: what follows would have gaps.
        """
        if self._room is None:
            self._room = _reserve()
        end = self._used + count
        if count and not self._full and (end > self._next_look or end > len(self._room)):
            self._next_look = end + _LOOK
            most, left = memory.limit(), memory.available()
            if end > len(self._room) or left < most // _KEPT:
                self._full = (
                    f"{self._used * layout.UNIT >> 20:,} MiB of records are in host memory, {left >> 20:,} of "
                    f"{most >> 20:,} MiB are left: record fewer blocks, warps or SMs, or shorter sessions"
                )
        if count and self._full:
            raise MemoryError(self._full)
        taken, self._used = self._room[self._used : end], end
        return taken

    def lines(self) -> Lines:
        """All lines so far, (n, 16) uint32: a view that later appends do not change."""
        return np.zeros((0, _WORDS), np.uint32) if self._room is None else self._room[: self._used]


def _reserve() -> Lines:
    size = max(_LEAST, memory.limit() // _SHARE // mmap.PAGESIZE * mmap.PAGESIZE)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    while True:
        try:
            room = mmap.mmap(-1, size, flags=flags)
            break
        except OSError:  # address space is limited (ulimit -v, a container): request less
            if size <= _LEAST:
                raise
            size //= 2
    if hasattr(mmap, "MADV_HUGEPAGE"):
        room.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(room, np.uint32).reshape(-1, _WORDS)
