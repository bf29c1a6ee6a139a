"""The host's side of the simulated device: its memory and time, and draining while kernels run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from kscope.capture import wire
from kscope.capture.capture_data import ClockSync, DeviceCapture
from kscope.capture.expand import Expander, Lines
from kscope.capture.heads import Units, finished, is_head
from kscope.capture.model import Problem
from kscope.instrument.backend import OpenPool
from kscope.instrument.subset import Subset

from .machine import POWER_ON_NS, Machine
from .memory import U32, Memory


@dataclass(frozen=True)
class _Slab:
    """A slab: its units, its launch's entry, and where it was claimed."""

    units: Units
    entry: np.void
    stripe: int
    position: int

    @property
    def closed(self) -> bool:
        return bool(finished(self.units[:1])[0])

    def copy(self) -> _Slab:
        return replace(self, units=self.units.copy())


class SimDevice:
    """The simulated device.

    Attributes:
        memory: the control block and the pool of the armed session.
        now_ns: the simulated time when the last launch ended.
    """

    def __init__(self) -> None:
        self.memory = Memory.of(0, Subset())
        self.now_ns = 0.0
        self._machine = Machine()
        self._clocks: tuple[int, ...] = ()  # of this session's SMs, at time zero
        self._sms = 0
        self._interpreted = False  # a launch since arm() ran on the host's clock
        self._grid_id = 0
        self._running: dict[int, Callable[[], float]] = {}  # grid id -> its time, ns
        self._lock = threading.Lock()  # launches of several threads count under it
        self._epoch = 0  # kept here because disarm() clears the gate's
        self._reset()

    def _reset(self) -> None:
        self._tails = [0] * len(self.memory.stripes)  # units that the host has read
        self._slabs: list[_Slab] = []
        self._problems: tuple[Problem, ...] = ()

    def arm(self, epoch: int, subset: Subset, pool_bytes: int | None, open_pool: OpenPool | None = None) -> bool:
        """A fresh pool and an open gate.

        Args:
            epoch, subset, pool_bytes: as for Backend.arm().
            open_pool: as for Backend.survive().

        Returns:
            True if no launch is running. Time then restarts, so that equal sessions record equal words.
        """
        self.memory, self._epoch = Memory.of(epoch, subset, pool_bytes, open_pool=open_pool), epoch
        self._reset()
        self._sms, self._interpreted = 0, False
        if not self._running:
            self.now_ns, self._grid_id, self._clocks = 0.0, 0, ()
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
            # in a file, unfinished slabs stay where a reader finds them
            self._drain(unfinished=wait and not self._running and self.memory.file is None)
            lines = self._expanded([*self._slabs, *self._held()])
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

    def problems(self) -> tuple[Problem, ...]:
        """Problems for readers of the slabs last collected."""
        return self._problems

    def now(self) -> float:
        """The simulated time, ns."""
        return max([self.now_ns, *(time() for time in tuple(self._running.values()))])

    def running_on(self, machine: Machine) -> Machine:
        """The machine of a launch, with the clocks of the session's launches so far.

        A GPU's counters never restart, but each seed draws others.
        """
        with self._lock:
            if machine.offsets is None:
                machine = replace(machine, offsets=(*self._clocks, *machine.zeros[len(self._clocks) :])[: machine.sms])
            self._clocks = (*machine.zeros, *self._clocks[machine.sms :])
            return machine

    def begin(self, machine: Machine, time: Callable[[], float], *, interpreted: bool = False) -> int:
        """Begin a launch on `machine`; `time` returns its time while it runs. Returns its grid id.

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
        """End a launch."""
        with self._lock:
            self.now_ns = max(self.now_ns, self._running.pop(grid_id)())
        with self.memory.lock:
            self._drain(unfinished=False)

    def drain_if_half_full(self) -> None:
        """Free memory before a stripe runs out of it, like the drain thread during a launch on a GPU."""
        stripes = self.memory.stripes
        room = stripes["limit"] - stripes["head"]  # uint32, modulo 2^32: larger than the ring means none
        if np.any((room > stripes["mask"] + 1) | (room < (stripes["mask"] + 1) // 2)):
            with self.memory.lock:
                self._drain(unfinished=False)

    def _drain(self, *, unfinished: bool) -> None:
        for stripe in range(len(self.memory.stripes)):
            self._drain_stripe(stripe, unfinished)

    def _expanded(self, slabs: list[_Slab]) -> Lines:
        """The slabs in the form of a capture."""
        expander = Expander(self._epoch, max(self._machine.rates), first_turn=0)
        lines = expander.expand(
            np.concatenate([np.zeros((0, wire.UNIT // 4), np.uint32), *(slab.units for slab in slabs)]),
            np.cumsum([0, *(len(slab.units) for slab in slabs)])[:-1],
            np.array([slab.entry for slab in slabs], wire.LAUNCH),
            np.array([slab.stripe for slab in slabs], np.uint32),
            np.array([slab.position for slab in slabs], np.uint32),
        )
        self._problems = tuple(expander.problems())
        return lines

    def _held(self) -> list[_Slab]:
        """Copies of the slabs not freed yet: open ones, and those claimed between them."""
        held: list[_Slab] = []
        for stripe, (words, tail) in enumerate(zip(self.memory.stripes, self._tails, strict=True)):
            claimed = int(words["head"]) - tail & U32
            held += [slab.copy() for slab in self._found(stripe, claimed)]
        return held

    def _drain_stripe(self, stripe: int, unfinished: bool) -> None:
        """Free [tail, head) if every slab in it is closed: each was claimed, and its head written, under the lock."""
        words, ring = self.memory.stripes[stripe], self.memory.ring(stripe)
        claimed = int(words["head"]) - self._tails[stripe] & U32
        if not claimed:
            return
        found = self._found(stripe, claimed)
        if not (unfinished or all(slab.closed for slab in found)):
            return
        self._slabs.extend(slab.copy() for slab in found)
        if self.memory.file is not None:
            self.memory.file.keep(self._expanded(found))
        ring[:] = 0  # all of [tail, head) is free, and no other unit was in use
        self._tails[stripe] = int(words["head"])
        words["limit"] = int(words["head"]) + len(ring) & U32

    def _found(self, stripe: int, claimed: int) -> list[_Slab]:
        """Views of the slabs that begin among the claimed units of a stripe."""
        ring, tail = self.memory.ring(stripe), self._tails[stripe]
        found: list[_Slab] = []
        position = 0
        while position < min(claimed, len(ring)):
            at = tail + position & len(ring) - 1
            size = 1
            if is_head(ring[at : at + 1])[0]:
                entry = self.memory.table[int(ring[at, 0]) >> wire.SLOT_SHIFT].copy()
                size = wire.slab_units(int(ring[at, 3]) >> wire.LOG2_SHIFT)
                found.append(_Slab(ring[at : at + size], entry, stripe, tail + position & U32))
            position += size
        return found
