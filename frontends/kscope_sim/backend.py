"""The host's side of the simulated memory: arming, draining while kernels run, reading back.

What lives here: SimBackend, and the accounting that frees a stripe's memory in order. What does not:
the device's side (protocol.py), time (launch.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kscope.capture import layout
from kscope.capture.model import ClockSync, DeviceCapture, ModuleMeta
from kscope.instrument.recording import Recording
from kscope.instrument.registry import Backend
from kscope.instrument.sampling import Sampling

from .crowd import Crowd
from .guest import Guest
from .machine import POWER_ON_NS, Machine
from .memory import U32, Memory
from .module import Module

Lines = npt.NDArray[np.uint32]
_PER_UNIT = layout.UNIT // 4


@dataclass
class _Cursor:
    """How far the host has read a stripe: `tail` in units, and the skipped ones that it has seen."""

    tail: int = 0
    skipped: int = 0


class SimBackend(Backend):
    """Owns the simulated device: its memory, its modules, its time."""

    def __init__(self) -> None:
        self.recording: Recording | None = None  # None: plain
        self.memory = Memory.of(0, Sampling())
        self.now_ns = 0.0
        self._modules: dict[tuple[object, str], Module] = {}
        self._machine = Machine()
        self._sms = 0
        self._grid_id = 0
        self._running = 0
        self._lock = threading.Lock()  # around what launches of several threads count and keep
        self._epoch = 0  # of the last session: the gate's is 0 again when it is disarmed
        self._reset()

    def _reset(self) -> None:
        self._cursors = [_Cursor() for _ in self.memory.stripes]
        self._slabs: list[Lines] = []

    # registry.Backend

    def module_loaded(self, module: int) -> None:
        """Nothing to do: simulated modules read the one gate there is."""

    def arm(self, epoch: int, sampling: Sampling, pool_bytes: int | None) -> None:
        """A fresh pool, an open gate. Time restarts, so that the same session gives the same words."""
        self.memory, self._epoch = Memory.of(epoch, sampling, pool_bytes), epoch
        self._reset()
        self._sms = 0
        if not self._running:
            self.now_ns, self._grid_id = 0.0, 0
            self._modules.clear()

    def disarm(self) -> None:
        """Close the gate: warps that begin now do not claim."""
        self.memory.gate["epoch"] = 0

    def resume(self) -> None:
        """Open the gate again."""
        self.memory.gate["epoch"] = self._epoch

    def collect(self, *, wait: bool) -> list[DeviceCapture]:
        """All slabs that were claimed since arm(), as they are; wait=True frees what was never finished as well."""
        with self.memory.lock:
            self._drain(unfinished=wait and not self._running)
            lines = np.concatenate([np.zeros((0, _PER_UNIT), np.uint32), *self._slabs, *self._held()])
        return [
            DeviceCapture(
                ordinal=0,
                name="simulated",
                lines=lines,
                sms=self._sms,
                lost=int(self.memory.stripes["lost"].sum()),
                tick_ns=self._machine.tick_ns,
                syncs=(ClockSync(POWER_ON_NS, POWER_ON_NS, POWER_ON_NS),),
            )
        ]

    def modules(self) -> tuple[ModuleMeta, ...]:
        """Every module that was prepared and launched since arm(), with the names that were met."""
        return tuple(module.meta() for module in tuple(self._modules.values()))

    # for launch()

    def begin(self, machine: Machine) -> int:
        """A launch begins: its grid id."""
        with self._lock:
            self._machine, self._sms = machine, max(self._sms, machine.sms)
            self._running += 1
            self._grid_id += 1
            return self._grid_id

    def end(self) -> None:
        """The launch has ended."""
        with self._lock:
            self._running -= 1
        with self.memory.lock:
            self._drain(unfinished=False)

    def module(self, name: str, kernel: Callable[..., object]) -> Module | None:
        """The kernel as prepared for the recording that is on, None where it is off."""
        if self.recording is None:
            return None
        return self._prepared(name, kernel, self.recording)

    def guest(
        self, name: str, kernel: Callable[..., object], grid: tuple[int, int, int], recording: Recording
    ) -> Guest:
        """A launch that the caller runs, block after block."""
        return Guest(self, name, self._prepared(name, kernel, recording), grid)

    def crowd(
        self,
        name: str,
        kernel: Callable[..., object],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        recording: Recording,
    ) -> Crowd:
        """A launch that the caller runs, thread by thread."""
        return Crowd(self, name, self._prepared(name, kernel, recording), grid, block)

    def _prepared(self, name: str, kernel: Callable[..., object], recording: Recording) -> Module:
        key = kernel if isinstance(kernel, Hashable) else id(kernel), recording.tag()
        if key not in self._modules:
            self._modules.setdefault(key, Module(name, kernel, recording))  # another thread may have been faster
        return self._modules[key]

    def drain_if_half_full(self) -> None:
        """What the host's thread does during a launch: it frees memory before a stripe is out of it."""
        stripes = self.memory.stripes
        room = stripes["limit"] - stripes["head"]  # uint32, modulo 2^32; "more than all" is none
        if np.any((room > stripes["mask"] + 1) | (room < (stripes["mask"] + 1) // 2)):
            with self.memory.lock:
                self._drain(unfinished=False)

    # draining

    def _drain(self, *, unfinished: bool) -> None:
        for stripe in range(len(self.memory.stripes)):
            self._drain_stripe(stripe, unfinished)

    def _held(self) -> list[Lines]:
        """Copies of the slabs that are not freed: those that are open, and what was claimed beside them."""
        held: list[Lines] = []
        for stripe, (words, cursor) in enumerate(zip(self.memory.stripes, self._cursors, strict=True)):
            ring, claimed = self.memory.ring(stripe), int(words["head"]) - cursor.tail & U32
            found = _slabs(ring, cursor.tail, min(claimed, len(ring)), stripe, self._epoch)
            held += [slab.copy() for slab in found]
        return held

    def _drain_stripe(self, stripe: int, unfinished: bool) -> None:
        """Free [tail, head) where every claim in it is accounted for: by a slab, or as skipped."""
        words, cursor, ring = self.memory.stripes[stripe], self._cursors[stripe], self.memory.ring(stripe)
        skipped = int(words["skipped"])  # read before head: what is skipped later is counted next time
        claimed = int(words["head"]) - cursor.tail & U32
        found = _slabs(ring, cursor.tail, min(claimed, len(ring)), stripe, self._epoch)
        accounted = sum(map(len, found)) + (skipped - cursor.skipped & U32)
        if claimed == 0 or accounted != claimed or not (unfinished or all(map(_closed, found))):
            return
        self._slabs.extend(slab.copy() for slab in found)
        ring[:] = 0  # all of [tail, head) is free, and nothing else was in use
        cursor.tail, cursor.skipped = cursor.tail + claimed & U32, skipped
        words["limit"] = cursor.tail + len(ring) & U32


def _slabs(ring: Lines, tail: int, units: int, stripe: int, epoch: int) -> list[Lines]:
    """The slabs that begin in `units` units from `tail` of a stripe's endless sequence, as views."""
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
