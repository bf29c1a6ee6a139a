"""The way of records to host memory: to pinned staging memory, and what is kept expanded from there to the arena."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kscope.capture import layout, wire
from kscope.capture.expand import Plan, write
from kscope.util.parallel import submit

from .arena import Arena
from .device import Device
from .driver import Memory
from .ranges import Bytes, Ranges, in_rings
from .slab_search import Ints, Pieces, U32s, Units

BATCH, PLACES = (16 << 20) + wire.HEAD_BYTES, 3
"""Bytes of a batch of parts, which the largest slab fits into, and batches in staging memory."""
_CHUNK = (2 << 20) // layout.LINE
"""Lines that a thread writes at a time."""


@dataclass(frozen=True)
class Part:
    """`units` units of a stripe from `tail` on. whole: up to head."""

    stripe: int
    tail: int
    units: int
    whole: bool


class Staging:
    """Staging memory with room for several batches.

    Args:
        device: its rings, and its driver for pinned memory and a stream.
        workers: threads that expand to the arena.

    Attributes:
        memory: what is read from.
        units: of a place.
    """

    def __init__(self, device: Device, workers: Executor) -> None:
        self.memory: Memory = device.driver
        self.stream = device.driver.stream()
        self._device, self._workers = device, workers
        self._memory = device.driver.pinned(PLACES * BATCH).view("<u4").reshape(PLACES, -1, wire.UNIT // 4)
        self._copies: list[list[Future[None]]] = [[] for _ in range(PLACES)]
        self.units = self._memory.shape[1]

    def read(self, into: Bytes, address: int) -> None:
        """Begin to copy device memory to pinned memory."""
        self.memory.read(into, address, self.stream)

    def arrived(self) -> None:
        """Wait for all copies from the device."""
        self.memory.synchronize(self.stream)

    def fetch(self, batch: list[Part], place: int) -> Units:
        """Begin to copy the parts to a place, when what it held is in the arena. Returns the copy."""
        self._copied(place)
        units = np.asarray(self._memory[place][: sum(part.units for part in batch)])
        ranges = ranges_of(batch, self._device.table, np.array([part.units for part in batch]))
        self.memory.read_ranges(units.reshape(-1).view(np.uint8), ranges, self.stream)
        return units

    def keep(self, place: int, plan: Plan, launches: np.ndarray, epoch: int, arena: Arena) -> None:
        """Begin to expand the planned slabs at a place into the arena. Raises MemoryError."""
        room, units = arena.take(plan.lines), self._memory[place]
        cuts = np.searchsorted(plan.line, np.arange(0, plan.lines, _CHUNK)).tolist()
        for first, stop in pairwise([*cuts, len(plan.at)]):
            if first < stop:
                job = units, launches, plan, epoch, room, slice(first, stop)
                self._copies[place].append(submit(self._workers, lambda job: write(*job), job))

    def wait(self) -> None:
        """Wait until everything that was kept is in the arena."""
        for place in range(PLACES):
            self._copied(place)

    def _copied(self, place: int) -> None:
        for copy in self._copies[place]:
            copy.result()
        self._copies[place] = []


def ranges_of(batch: list[Part], table: np.ndarray, units: Ints) -> Ranges:
    """Where the first units (p,) of each part are; table: (k,) wire.STRIPE, every stripe's."""
    stripe, tail = [part.stripe for part in batch], np.array([part.tail for part in batch], np.uint32)
    return in_rings(table[stripe], tail, units)


def pieces_of(batch: list[Part], skipped: U32s, head: U32s) -> Pieces:
    """The parts, one after the other; skipped, head: every stripe's."""
    stripe = np.array([part.stripe for part in batch])
    return Pieces(
        stripe=stripe,
        first=np.cumsum([0, *(part.units for part in batch)]),
        tail=np.array([part.tail for part in batch], np.uint32),
        whole=np.array([part.whole for part in batch]),
        skipped=skipped[stripe],
        head=head[stripe],
    )
