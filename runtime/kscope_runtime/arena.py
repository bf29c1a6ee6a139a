"""Host memory that grows without being copied: one reservation of address space per session, filled from the front."""

from __future__ import annotations

import mmap
import os

import numpy as np
import numpy.typing as npt

from kscope.capture import layout

Lines = npt.NDArray[np.uint32]
_WORDS = layout.UNIT // 4
_LEAST = 64 << 20
_NORESERVE = 0x4000  # of linux/mman.h; Python has no name for it before 3.13


class Arena:
    """Lines of 64 bytes. It reserves address space as large as the machine's memory; a page costs memory when it is
    written.
    """

    def __init__(self) -> None:
        self._room: Lines | None = None
        self._used = 0

    def take(self, count: int) -> Lines:
        """Room for `count` more lines, to be filled by the caller. Raises MemoryError if the machine has no more."""
        if self._room is None:
            self._room = _reserve()
        end = self._used + count
        if end > len(self._room):
            raise MemoryError(f"a session recorded more than the machine's memory ({self._room.nbytes} bytes) holds")
        taken, self._used = self._room[self._used : end], end
        return taken

    def lines(self) -> Lines:
        """All lines so far, (n, 16) uint32: a view that later appends do not change."""
        return np.zeros((0, _WORDS), np.uint32) if self._room is None else self._room[: self._used]


def _reserve() -> Lines:
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
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
