"""Moving what was recorded off a device while it records: copy, account, clear, raise limits.

What lives here: one pass over a device's stripes, and the thread that makes passes while a session is
armed. What does not: which units are free (accounting.py), where they are (device.py).

A pass touches no stream of the user's and launches no kernel: copies go through a stream of their own.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from kscope import layout
from kscope.capture import Problem
from kscope.errors import DriverError

from .accounting import Ints, Lines, Pieces, Slabs, Stripes, U32s, advance, find
from .arena import Arena
from .device import Device

STAGING = 64 << 20
_IDLE_S, _BUSY_S = 0.002, 0.0002
_FULL = 8  # a stripe is worth a copy when an eighth of it is claimed


@dataclass(frozen=True)
class _Copy:
    """`units` units from `tail` on of a stripe, at line `first` of the staging buffer."""

    stripe: int
    first: int
    tail: int
    units: int
    whole: bool


class Drain:
    """One device's drain, from arm() until the session is collected. Not thread-safe but for start(), stop()
    and `lock`, which a pass holds."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.lock = threading.Lock()
        self.arena = Arena()
        self.failed: Problem | None = None
        self._driver, self._stream = device.driver, device.driver.stream()
        self._control = (
            device.driver.pinned(2 * device.stripes * layout.STRIPE_BYTES).view(layout.STRIPE).reshape(2, -1)
        )
        self._limits = device.driver.pinned(4 * device.stripes).view("<u4")
        self._staging = device.driver.pinned(STAGING).view("<u4").reshape(-1, layout.UNIT // 4)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.state = Stripes.at(device.words())
        self._epoch = 0
        self._lost = np.zeros(device.stripes, np.uint32)

    # session

    def begin(self, epoch: int) -> None:
        """A session begins: what is found from now on is its own."""
        with self.lock:
            self.arena, self._epoch = Arena(), epoch
            self._look()
            self._lost = self._control[1]["lost"].copy()
            self.failed = None

    def lost(self) -> int:
        """Lanes that found no room from begin() to the last pass."""
        return int((self._control[1]["lost"] - self._lost).astype(np.int64).sum())

    def resize(self, size: int | None) -> None:
        """Make the pool `size` bytes (None: as it is), once the device has finished all its work."""
        if not self.device.fits(size):
            self.finish()
            self.device.open_pool(size)
            self.state = Stripes.at(self.device.words())

    def finish(self) -> None:
        """Take all that is claimed, finished or not, and end the passes. Waits for all work of the device."""
        self._driver.synchronize_context()
        self.stop()
        with self.lock:
            while self.once(least=1 << 31, closed=False):
                pass

    def snapshot(self) -> Lines:
        """All that was recorded so far, slabs that are still being written included; (n, 16) uint32."""
        with self.lock:
            self.once(least=1 << 31)
            rest = self.peek()
            return np.concatenate([self.arena.lines(), rest]) if len(rest) else self.arena.lines()

    def start(self) -> None:
        """Make passes in a thread until stop()."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(
                target=self._run, name=f"kscope drain {self.device.facts.ordinal}", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """No more passes; returns when the last one is done."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        try:
            self._driver.set_context(self.device.context)
            wait = _IDLE_S
            while not self._stop.wait(wait):
                with self.lock:
                    wait = _BUSY_S if self.once(least=_FULL) else _IDLE_S
        except (DriverError, MemoryError) as error:
            self.failed = Problem("drain", f"device {self.device.facts.ordinal}: draining stopped: {error}")

    # one pass

    def once(self, *, least: int, closed: bool = True) -> int:
        """Copy stripes that are claimed to 1/least or more and free what can be; bytes that were freed.

        closed=False takes everything that is claimed: only after the device has finished all its work.
        """
        skipped, head = self._look()
        state = self.state
        claimed = head - state.tail
        granted = np.minimum(claimed, state.limit - state.tail)
        worth = np.flatnonzero((claimed > 0) & (claimed.astype(np.int64) * least >= state.ring))
        freed = 0
        for batch in self._batches(worth, granted):
            freed += self._pass(batch, skipped, head, closed)
        return freed

    def peek(self) -> Lines:
        """A copy of what is claimed and not freed, slabs that are still being written included; (n, 16) uint32."""
        _, head = self._look()
        state, parts = self.state, []
        granted = np.minimum(head - state.tail, state.limit - state.tail)
        for batch in self._batches(np.flatnonzero(granted), granted):
            pieces, lines = self._copy(batch, head, head)
            self._hide(lines, find(lines, pieces))
            parts.append(lines.copy())
        return np.concatenate(parts) if parts else np.zeros((0, layout.UNIT // 4), np.uint32)

    def _look(self) -> tuple[U32s, U32s]:
        """(skipped, head) of every stripe, skipped read before head."""
        for copy in self._control:
            self._driver.read(copy.view(np.uint8), self.device.control + layout.GATE_BYTES, self._stream)
        self._driver.synchronize(self._stream)
        skipped, head = self._control[0]["skipped"].copy(), self._control[1]["head"].copy()
        self.state.saw(head)
        return skipped, head

    def _batches(self, worth: Ints, granted: U32s) -> list[list[_Copy]]:
        """The stripes' claimed parts, packed into as many staging buffers as they need; a part that is
        larger than that is cut."""
        batches: list[list[_Copy]] = [[]]
        used, room = 0, len(self._staging)
        for stripe in worth.tolist():
            units = int(granted[stripe])
            cut = min(units, room)
            if used + cut > room:
                batches.append([])
                used = 0
            batches[-1].append(_Copy(stripe, used, int(self.state.tail[stripe]), cut, cut == units))
            used += cut
        return [batch for batch in batches if batch]

    def _pass(self, batch: list[_Copy], skipped: U32s, head: U32s, closed: bool) -> int:
        pieces, lines = self._copy(batch, skipped, head)
        slabs = find(lines, pieces)
        self._hide(lines, slabs)
        if closed:
            return self._free(lines, batch, advance(self.state, pieces, slabs))
        # nothing runs: what is claimed and in no slab was skipped
        free = np.where(pieces.whole, (pieces.head - pieces.tail).astype(np.int64), np.diff(pieces.first))
        position = pieces.tail + free.astype(np.uint32)
        self.state.found[pieces.stripe] = position - pieces.skipped
        self.state.proven[pieces.stripe] = position
        return self._free(lines, batch, free)

    def _copy(self, batch: list[_Copy], skipped: U32s, head: U32s) -> tuple[Pieces, Lines]:
        for copy in batch:
            for at, address, units in self._ranges(copy.stripe, copy.tail, copy.units):
                into = self._staging[copy.first + at : copy.first + at + units]
                self._driver.read(into.reshape(-1).view(np.uint8), address, self._stream)
        self._driver.synchronize(self._stream)
        stripe = np.array([copy.stripe for copy in batch])
        pieces = Pieces(
            stripe=stripe,
            first=np.array([*(copy.first for copy in batch), batch[-1].first + batch[-1].units]),
            tail=np.array([copy.tail for copy in batch], np.uint32),
            whole=np.array([copy.whole for copy in batch]),
            skipped=skipped[stripe],
            head=head[stripe],
        )
        return pieces, self._staging[: int(pieces.first[-1])]

    def _hide(self, lines: Lines, slabs: Slabs) -> None:
        """Slabs of another session (claimed late, or before a reset) are no data of this one."""
        for slab in np.flatnonzero(slabs.epoch != self._epoch).tolist():
            lines[slabs.at[slab] : slabs.at[slab] + slabs.units[slab]] = 0

    def _free(self, lines: Lines, batch: list[_Copy], free: Ints) -> int:
        """Keep the first free[i] units of each copy, clear them on the device, and let them be claimed again."""
        kept = np.minimum(free, [copy.units for copy in batch])
        room = self.arena.take(int(kept.sum()))
        at = 0
        for copy, units, passed in zip(batch, kept.tolist(), free.tolist(), strict=True):
            if not passed:
                continue
            room[at : at + units] = lines[copy.first : copy.first + units]
            at += units
            for _, address, count in self._ranges(copy.stripe, copy.tail, units):
                self.device.clear(address, count * layout.UNIT, self._stream)
            self.state.tail[copy.stripe] = copy.tail + passed & 0xFFFFFFFF
        self.state.limit = self.state.tail + self.state.ring
        self._limits[:] = self.state.limit
        self._driver.write_column(
            self.device.control + layout.GATE_BYTES + 4,
            layout.STRIPE_BYTES,
            self._limits.view(np.uint8),
            4,
            self._stream,
        )
        self._driver.synchronize(self._stream)
        return at * layout.UNIT

    def _ranges(self, stripe: int, tail: int, units: int) -> list[tuple[int, int, int]]:
        """(units from the start, address, units) of the one or two parts of a ring that these units stand in."""
        words = self.device.table[stripe]
        base, ring = int(words["base"]), int(words["mask"]) + 1
        at = tail & ring - 1
        head = min(units, ring - at)
        parts = [(0, base + at * layout.UNIT, head), (head, base, units - head)]
        return [part for part in parts if part[2]]
