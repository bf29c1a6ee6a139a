"""Host memory that grows without being copied: one reservation of address space per session. What exceeds a quarter of
the memory goes to an unnamed file that is mapped after it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kscope.capture import layout
from kscope.util import memory

Lines = npt.NDArray[np.uint32]
_WORDS = layout.LINE // 4
_LEAST = 64 << 20
_LOOK, _LOOKS = (256 << 20) // layout.LINE, 256
"""Lines between two checks of the available memory: as many, or this share of the memory. A check reads files of /proc,
while launches take the interpreter's lock again and again.
"""
_STEP = 1 << 30
"""Bytes by which the file grows."""
_SHARE, _IN_MEMORY, _KEPT = 2, 4, 8
"""A session without a disk takes at most 1/2 of the memory. With one, it takes 1/4, and the rest goes to the file. It
stops when less than 1/8 of the memory is available: saving and decoding need memory, too."""
_NORESERVE = 0x4000  # from linux/mman.h; Python has no name for it before 3.13
_FIXED = 0x10


class Arena:
    """Lines of 64 bytes. It reserves address space; a page costs memory when it is written. The memory and the file are
    freed with the arena and the last of its lines.

    Args:
        folder: where the file is created; None for the folder of temporary files.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path(tempfile.gettempdir())
        self._room: Lines | None = None
        self._used = self._next_look = 0
        self._file: int | None = None  # descriptor
        self._mapped = 0  # first line that is not mapped to the file
        self._full = ""

    def take(self, count: int) -> Lines:
        """Room for `count` more lines, to be filled by the caller.

        Raises:
            MemoryError: too little memory or disk space is left. From then on the arena is full: later lines would
                have gaps.
        """
        if self._room is None:
            self._room = _reserve(memory.limit() // _SHARE + _free(self._folder))
        end = self._used + count
        if count and not self._full:
            if end > self._next_look or end > len(self._room):
                self._look(end)
            if self._file is not None and end > self._mapped and not self._full:
                self._map(end)
        if count and self._full:
            raise MemoryError(self._full)
        taken, self._used = self._room[self._used : end], end
        return taken

    def reserve(self, count: int) -> Lines:
        """Room for at least `count` lines, of which keep() takes some. Raises MemoryError like take()."""
        self.take(count)
        self._used -= count
        assert self._room is not None
        known = self._used if self._full else min(len(self._room), max(self._next_look, self._used + count))
        return self._room[self._used : known if self._file is None else min(known, self._mapped)]

    def keep(self, count: int) -> None:
        """Take the first lines of those that were reserved."""
        self._used += count

    def lines(self) -> Lines:
        """All lines so far, (n, 16) uint32: a view that later appends do not change."""
        return np.zeros((0, _WORDS), np.uint32) if self._room is None else self._room[: self._used]

    def _look(self, end: int) -> None:
        """Check if there is memory up to line `end`, or the file is needed."""
        assert self._room is not None
        most, left = memory.limit(), memory.available()
        self._next_look = end + max(_LOOK, most // layout.LINE // _LOOKS)
        if self._file is None and (end * layout.LINE > most // _IN_MEMORY or left < most // _IN_MEMORY):
            self._begin_file()
        too_much = end > len(self._room) or (self._file is None and end * layout.LINE > most // _SHARE)
        if too_much or left < most // _KEPT:
            self._stop(f"{left >> 20:,} of {most >> 20:,} MiB of memory are left")

    def _begin_file(self) -> None:
        """From the next page on, lines are in a file, if the folder takes one."""
        try:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                self._file = os.dup(file.fileno())
        except OSError:  # no such folder, or it is read-only
            return
        weakref.finalize(self, os.close, self._file)
        page = mmap.PAGESIZE // layout.LINE
        self._mapped = -(-self._used // page) * page

    def _map(self, end: int) -> None:
        """Extend the file up to line `end` at least. Its blocks are allocated: a full disk is an error here, and not a
        fault when a page is written.
        """
        assert self._room is not None and self._file is not None
        size = os.fstat(self._file).st_size
        more = max(_STEP, -(-(end - self._mapped) * layout.LINE // mmap.PAGESIZE) * mmap.PAGESIZE)
        more = min(more, (len(self._room) - self._mapped) * layout.LINE)
        try:
            os.posix_fallocate(self._file, size, more)
            _map_file(self._room[self._mapped :].ctypes.data, more, self._file, size)
        except OSError as error:
            self._stop(f"{self._folder} takes no more of them ({error.strerror})")
            return
        self._mapped += more // layout.LINE

    def _stop(self, why: str) -> None:
        self._full = (
            f"{self._used * layout.LINE >> 20:,} MiB of records are on the host, {why}: record fewer blocks, warps or "
            "SMs, or shorter sessions"
        )


def _free(folder: Path) -> int:
    """Bytes that are free in the folder's file system; 0 without one."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _reserve(size: int) -> Lines:
    size = max(_LEAST, size // mmap.PAGESIZE * mmap.PAGESIZE)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    while True:
        try:
            room = mmap.mmap(-1, size, flags=flags)
            break
        except OSError:  # address space is limited (ulimit -v, a container): request less
            if size <= _LEAST:
                raise
            size = max(_LEAST, size // 2 // mmap.PAGESIZE * mmap.PAGESIZE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        room.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(room, np.uint32).reshape(-1, _WORDS)


def _map_file(address: int, size: int, file: int, offset: int) -> None:
    """Map part of a file over pages of a reservation, which frees it with its other pages. Raises OSError."""
    call = ctypes.CDLL(None, use_errno=True).mmap
    call.restype = ctypes.c_void_p
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    found = call(address, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _FIXED, file, offset)
    if found != address:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
