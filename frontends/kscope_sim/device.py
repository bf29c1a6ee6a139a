"""The host's side of the simulated device: its memory and time, and draining while kernels run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kscope.capture import layout
from kscope.capture.model import ClockSync, DeviceCapture
from kscope.instrument.sampling import Sampling

from .machine import POWER_ON_NS, Machine
from .memory import U32, Memory

Lines = npt.NDArray[np.uint32]
_PER_UNIT = layout.UNIT // 4


@dataclass
class _Cursor:
    """How far the host has read a stripe: `tail` in units, and how many skipped units it has counted."""

    tail: int = 0
    skipped: int = 0


class SimDevice:
    """The simulated device.

    Attributes:
        memory: the control block and the pool of the armed session.
        now_ns: the simulated time when the last launch ended.
    """

    def __init__(self) -> None:
        self.memory = Memory.of(0, Sampling())
        self.now_ns = 0.0
        self._machine = Machine()
        self._sms = 0
        self._interpreted = False  # a launch since arm() ran on the host's clock
        self._grid_id = 0
        self._running: dict[int, Callable[[], float]] = {}  # grid id -> its time, ns
        self._lock = threading.Lock()  # launches of several threads count under it
        self._epoch = 0  # kept here because disarm() clears the gate's
        self._reset()

    def _reset(self) -> None:
        self._cursors = [_Cursor() for _ in self.memory.stripes]
        self._slabs: list[Lines] = []

    def arm(self, epoch: int, sampling: Sampling, pool_bytes: int | None) -> bool:
        """A fresh pool and an open gate.

        Returns:
            True if no launch is running. Time then restarts, so that equal sessions record equal words.
        """
        self.memory, self._epoch = Memory.of(epoch, sampling, pool_bytes), epoch
        self._reset()
        self._sms, self._interpreted = 0, False
        if not self._running:
            self.now_ns, self._grid_id = 0.0, 0
        return not self._running

    def disarm(self) -> None:
        """Close the gate: warps that begin now claim nothing."""
        self.memory.gate["epoch"] = 0

    def resume(self) -> None:
        """Open the gate again."""
        self.memory.gate["epoch"] = self._epoch

    def collect(self, *, wait: bool) -> DeviceCapture:
        """All slabs claimed since arm(). wait=True also frees slabs that were never finished."""
        with self.memory.lock:
            self._drain(unfinished=wait and not self._running)
            lines = np.concatenate([np.zeros((0, _PER_UNIT), np.uint32), *self._slabs, *self._held()])
        return DeviceCapture(
            ordinal=0,
            name="interpreted" if self._interpreted else "simulated",
            lines=lines,
            sms=self._sms,
            lost=int(self.memory.stripes["lost"].sum()),
            tick_ns=self._machine.tick_ns,
            syncs=(ClockSync(POWER_ON_NS, POWER_ON_NS, POWER_ON_NS),),
            max_clock_khz=round(max(self._machine.rates) * 1e6),
            read_ns=0 if wait else self._machine.globaltimer(self.now()),
        )

    def now(self) -> float:
        """The simulated time, ns."""
        return max([self.now_ns, *(time() for time in tuple(self._running.values()))])

    def begin(self, machine: Machine, time: Callable[[], float], *, interpreted: bool = False) -> int:
        """A launch on `machine` begins; `time` returns its time while it runs. Returns its grid id.

        Args:
            machine, time: the simulated machine, and ns after its start.
            interpreted: the time is the host's.
        """
        with self._lock:
            self._interpreted |= interpreted
            self._machine, self._sms = machine, max(self._sms, machine.sms)
            self._grid_id += 1
            self._running[self._grid_id] = time
            return self._grid_id

    def end(self, grid_id: int) -> None:
        """A launch has ended."""
        with self._lock:
            self.now_ns = max(self.now_ns, self._running.pop(grid_id)())
        with self.memory.lock:
            self._drain(unfinished=False)

    def drain_if_half_full(self) -> None:
        """Free memory before a stripe runs out of it, as the drain thread does during a launch on a GPU."""
        stripes = self.memory.stripes
        room = stripes["limit"] - stripes["head"]  # uint32, modulo 2^32: larger than the ring means none
        if np.any((room > stripes["mask"] + 1) | (room < (stripes["mask"] + 1) // 2)):
            with self.memory.lock:
                self._drain(unfinished=False)

    def _drain(self, *, unfinished: bool) -> None:
        for stripe in range(len(self.memory.stripes)):
            self._drain_stripe(stripe, unfinished)

    def _held(self) -> list[Lines]:
        """Copies of the slabs not freed yet: open ones, and those claimed between them."""
        held: list[Lines] = []
        for stripe, (words, cursor) in enumerate(zip(self.memory.stripes, self._cursors, strict=True)):
            ring, claimed = self.memory.ring(stripe), int(words["head"]) - cursor.tail & U32
            found = _slabs(ring, cursor.tail, min(claimed, len(ring)), stripe, self._epoch)
            held += [slab.copy() for slab in found]
        return held

    def _drain_stripe(self, stripe: int, unfinished: bool) -> None:
        """Free [tail, head) if every unit claimed in it belongs to a slab or was skipped."""
        words, cursor, ring = self.memory.stripes[stripe], self._cursors[stripe], self.memory.ring(stripe)
        skipped = int(words["skipped"])  # read before head, so a later skip counts next time
        claimed = int(words["head"]) - cursor.tail & U32
        found = _slabs(ring, cursor.tail, min(claimed, len(ring)), stripe, self._epoch)
        accounted = sum(map(len, found)) + (skipped - cursor.skipped & U32)
        if claimed == 0 or accounted != claimed or not (unfinished or all(map(_closed, found))):
            return
        self._slabs.extend(slab.copy() for slab in found)
        ring[:] = 0  # all of [tail, head) is free, and no other unit was in use
        cursor.tail, cursor.skipped = cursor.tail + claimed & U32, skipped
        words["limit"] = cursor.tail + len(ring) & U32


def _slabs(ring: Lines, tail: int, units: int, stripe: int, epoch: int) -> list[Lines]:
    """Views of the slabs that begin within `units` units from position `tail` of a stripe."""
    found: list[Lines] = []
    position, end = tail, tail + units
    while position < end:
        at = position & len(ring) - 1
        header = ring[at : at + layout.HEADER_UNITS].reshape(1, -1)
        size = 1
        if header.shape[1] == 2 * _PER_UNIT and int(layout.header_check(header)[0]) == int(header[0, 15]):
            fields = header.view(layout.HEADER)[0, 0]
            ours = int(fields["position"]) == position & U32 and int(fields["stripe"]) == stripe
            if ours and int(fields["magic"]) == layout.HEADER_WORD and int(fields["epoch"]) == epoch:
                size = layout.slab_units(int(fields["place"]) >> layout.LOG2_SHIFT & 31)
                found.append(ring[at : at + size])
        position += size
    return found


def _closed(slab: Lines) -> bool:
    fields = slab[: layout.HEADER_UNITS].reshape(1, -1).view(layout.HEADER)[0, 0]
    return int(fields["done"]) == layout.DONE_WORD ^ int(fields["count"]) ^ int(fields["end_clock"]) & U32
