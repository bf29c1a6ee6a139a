"""Writes a pool file (pool_layout.py), whose pages are allocated from the beginning. Only this process writes, except
for book and pool.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import native
from ...errors import UsageError
from ...util import processes
from ...util.json_values import dump_json
from .. import layout, metadata, wire
from ..model import ModuleMeta
from . import batch_check, held_memory, pool_layout

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class PoolDevice:
    """The device that a pool is for; see DeviceCapture."""

    ordinal: int
    name: str
    sms: int
    max_clock_khz: int = 0
    tick_ns: int = 0
    can_keep: bool = False
    """True if another process can keep its memory."""

    @property
    def is_simulated(self) -> bool:
        """True if its memory is the host's."""
        return self.name == "simulated"


def kept_bytes(pool: int) -> int:
    """The size of the ring of drained slabs beside a pool of that size."""
    size = max(pool_layout.LEAST_KEPT, min(pool_layout.MOST_KEPT, pool // pool_layout.KEPT_SHARE))
    return size // layout.LINE * layout.LINE


def file_bytes(pool: int) -> int:
    """The size of a file with a pool of that size."""
    return _page(pool_layout.KEPT_AT + kept_bytes(pool)) + _page(pool)


class PoolFile:
    """A new file with a pool, which this process writes. Thread-safe.

    Args:
        path: the file; must not exist. Its folder must be private.
        device: the device that records into it.
        epoch: the session.
        size: bytes of the pool.
        is_copy: True if kernels write to other memory, which another process copies to this file.

    Attributes:
        is_held: True if the folder has too little room, and `kscope run` holds the memory (held_memory.py).
        at_end: called when the session has ended, and the file is kept or gone.
        pool: (size,) uint8, on separate pages.
        memory: the whole file, which kernels may access.
        book: (SLOTS,) wire.LAUNCH.

    Raises:
        UsageError: the file system has too little room.
        OSError: the file cannot be created.
    """

    def __init__(self, path: Path, device: PoolDevice, epoch: int, size: int, *, is_copy: bool = False) -> None:
        self.path, self.device, self.is_copy = path, device, is_copy
        self.at_end: Callable[[], None] | None = None
        self.memory: Bytes
        total, kept = file_bytes(size), kept_bytes(size)
        self.is_held = held_memory.is_possible() and not _has_room(os.statvfs(path.parent), total)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = held_memory.offer(path) if self.is_held else os.open(path, flags, 0o600)
        try:
            self._map = _allocated(file, total)
            if self.is_held:
                held_memory.wait(path)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise UsageError(
                f"survive: {path.parent} has no room for {total >> 20:,} MiB ({error.strerror}): free some, pass"
                " a smaller pool=, start the program with kscope run, which holds memory elsewhere, or set"
                " KSCOPE_SURVIVE_FOLDER to a folder of another file system in memory"
            ) from None
        finally:
            os.close(file)
        self._bytes = self.memory = np.frombuffer(self._map, np.uint8)
        pool_at = _page(pool_layout.KEPT_AT + kept)
        self.pool = self._bytes[pool_at : pool_at + size]
        self.book = self._bytes[pool_layout.BOOK_AT : pool_layout.BOOK_AT + pool_layout.BOOK_BYTES].view(wire.LAUNCH)
        self._kept = self._bytes[pool_layout.KEPT_AT : pool_layout.KEPT_AT + kept]
        state_at, state = pool_layout.STATE_AT, pool_layout.STATE
        self._state = self._bytes[state_at : state_at + state.itemsize].view(state)
        self._lock = threading.Lock()
        self._entries = self._used = self._put = 0
        self._noted: dict[int, ModuleMeta] = {}
        self._state["state"] = pool_layout.RECORDING
        header = np.zeros(1, pool_layout.HEADER)
        header["magic"], header["pid"] = pool_layout.FIRST, os.getpid()
        header["device"], header["epoch"] = device.ordinal, epoch
        header["sms"], header["max_clock_khz"], header["tick_ns"] = device.sms, device.max_clock_khz, device.tick_ns
        header["born"], header["boot"] = processes.born(os.getpid()), processes.boot().encode()
        header["kept_at"], header["kept_bytes"] = pool_layout.KEPT_AT, kept
        header["pool_at"], header["pool_bytes"], header["is_copy"] = pool_at, size, is_copy
        header["check"] = pool_layout.header_check(header.tobytes())
        self._bytes[: pool_layout.HEADER.itemsize] = header.view(np.uint8)
        self.note("device", {"ordinal": device.ordinal, "name": device.name})

    def note(self, kind: str, data: dict[str, Any]) -> None:
        """Append an entry to the journal."""
        payload = dump_json({"kind": kind, **data})
        with self._lock:
            end = self._used + pool_layout.ENTRY_HEAD.itemsize + _aligned(len(payload))
            if end > pool_layout.JOURNAL_BYTES:
                self._state["journal_left_out"] += 1
                return
            self._entry(pool_layout.JOURNAL_AT + self._used, pool_layout.ENTRY, self._entries, payload)
            self._entries, self._used = self._entries + 1, end

    def modules(self, metas: Sequence[ModuleMeta]) -> None:
        """Note the modules that are new, or whose metadata has grown."""
        for meta in metas:
            key = meta.kernels[0].id if meta.kernels else id(meta)
            if self._noted.get(key) != meta:
                self._noted[key] = meta
                self.note("module", {"module": metadata.to_dict(meta)})

    def launched(self, kernel: int, time_ns: int, stack: Sequence[tuple[str, int, str]]) -> None:
        """Note a launch by the host, in place of the oldest of the last LAUNCHES. stack: innermost first."""
        with self._lock:
            number = int(self._state["launched"][0])
            rows = list(stack)
            while len(payload := dump_json({"kernel": kernel, "time": time_ns, "stack": rows})) > _MOST_LAUNCH and rows:
                rows.pop()
            at = pool_layout.LAUNCHES_AT + number % pool_layout.LAUNCHES * pool_layout.LAUNCH_BYTES
            self._entry(at, pool_layout.ENTRY, number, payload)
            self._state["launched"] = number + 1 & 0xFFFFFFFF

    def keep(self, lines: npt.NDArray[np.uint32]) -> None:
        """Keep drained slabs, (n, 16) uint32, in place of the oldest."""
        if not len(lines):
            return
        data = np.ascontiguousarray(lines).view(np.uint8).reshape(-1)
        with self._lock:
            number = int(self._state["batches"][0])
            if layout.LINE + len(data) <= len(self._kept):
                if self._put + layout.LINE + len(data) > len(self._kept):
                    self._kept[self._put : self._put + layout.LINE] = 0
                    self._put = 0
                at, first = self._put, self._put + layout.LINE
                self._kept[at:first] = 0  # the following lines are not a batch until it is complete
                check = _copied(data, self._kept[first : first + len(data)])
                head = _head(pool_layout.BATCH, number, len(data), check)
                self._kept[at : at + len(head)] = head
                self._put = first + len(data)
            self._state["batches"] = number + 1

    @property
    def ring(self) -> tuple[Bytes, npt.NDArray[np.uint64], int]:
        """For native/keeping.c, which keeps lines like keep(): batches, their number so far (1,), the place of the next
        one.
        """
        return self._kept, self._state["batches"], self._put

    def kept_up_to(self, put: int) -> None:
        """Note the place of the next batch."""
        self._put = put

    def end(self, *, remove: bool) -> None:
        """Mark the session as ended. remove: delete the file, because the capture has been saved."""
        self._state["state"] = pool_layout.ENDED
        if remove:
            self.path.unlink(missing_ok=True)
        at_end, self.at_end = self.at_end, None
        if at_end is not None:
            at_end()

    def _entry(self, at: int, magic: int, number: int, payload: bytes) -> None:
        first = at + pool_layout.ENTRY_HEAD.itemsize
        data = np.frombuffer(payload, np.uint8)
        self._bytes[at:first] = 0
        self._bytes[first : first + len(data)] = data
        self._bytes[at:first] = _head(magic, number, len(data), zlib.crc32(data.data))


_POPULATE_WRITE = 23  # from linux/mman.h; Python has no name for it
_MOST_LAUNCH = pool_layout.LAUNCH_BYTES - pool_layout.ENTRY_HEAD.itemsize


def _allocated(file: int, size: int) -> mmap.mmap:
    """Map a new file with allocated pages, large ones if the system gives them: a page that is missing later would be a
    fault of the program, or of the GPU. Raises OSError.
    """
    if not _has_room(os.fstatvfs(file), size):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.ftruncate(file, size)
    made = mmap.mmap(file, size)
    try:
        made.madvise(mmap.MADV_HUGEPAGE)
        made.madvise(_POPULATE_WRITE)
    except OSError:  # an older kernel, or one without large pages
        os.posix_fallocate(file, 0, size)
    return made


def _has_room(found: os.statvfs_result, size: int) -> bool:
    """True if a file system has room. A file system without a size has."""
    return not found.f_blocks or found.f_bavail * found.f_frsize >= size


def _head(magic: int, number: int, size: int, check: int) -> Bytes:
    head = np.zeros(1, pool_layout.ENTRY_HEAD)
    head["magic"], head["bytes"], head["number"], head["check"] = magic, size, number & 0xFFFFFFFF, check
    return head.view(np.uint8)


def _copied(batch: Bytes, to: Bytes) -> int:
    """Copy a batch of lines. Returns its checksum."""
    if len(batch) <= batch_check.PART or not native.available():
        to[:] = batch
        return batch_check.check(batch.data)
    parts = np.zeros(-(-len(batch) // batch_check.PART), np.uint32)
    words = len(batch) // 8, batch_check.PART // 8
    native.call("copy_checked", batch, to, *words, parts, native.threads())
    return batch_check.of_parts(parts.tolist())


def _aligned(size: int) -> int:
    return -(-size // 16) * 16


def _page(size: int) -> int:
    return -(-size // pool_layout.PAGE) * pool_layout.PAGE


def is_pool_file(path: str | os.PathLike[str]) -> bool:
    """True if a file begins as a pool file does; False if it cannot be read."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            is_file, first = stat.S_ISREG(os.fstat(file.fileno()).st_mode), pool_layout.FIRST
            return is_file and file.read(len(first)) == first
    except OSError:
        return False
