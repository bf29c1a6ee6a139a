"""Pinned memory, which batches of parts of stripes are copied to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kscope.capture import wire
from kscope.errors import DriverError

from .device import Device
from .driver import Memory
from .ranges import Ranges, in_rings
from .slab_search import Ints, Pieces, U32s, Units

BATCH, PLACES = (24 << 20) + wire.HEAD_BYTES, 3
"""Bytes of a batch of parts, which the largest slab fits into, and batches in staging memory: the device fills one, the
host accounts for another, and writes the third to the arena."""


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

    Attributes:
        memory: what is read from.
        units: of a place.
    """

    def __init__(self, device: Device) -> None:
        self.memory: Memory = device.driver
        self.stream = device.driver.stream()
        self.units = BATCH // wire.UNIT
        self._device = device
        self._places: list[Units | None] = [None] * PLACES

    def arrived(self) -> None:
        """Wait for all copies from the device."""
        self.memory.synchronize(self.stream)

    def fetch(self, batch: list[Part], place: int) -> Units:
        """Copy the parts to a place, which arrived() waits for. Returns the copy."""
        units = np.asarray(self._place(place)[: sum(part.units for part in batch)])
        ranges = ranges_of(batch, self._device.table, np.array([part.units for part in batch]))
        self.memory.read_ranges(units.reshape(-1).view(np.uint8), ranges, self.stream)
        return units

    def _place(self, place: int) -> Units:
        """A place's memory. It is pinned when it is first needed, by the drain's thread: that takes 10 ms or more."""
        found = self._places[place]
        if found is None:
            try:
                memory = self._device.driver.pinned(BATCH)
            except DriverError:  # the context is broken: what it left is read without the driver
                memory = np.empty(BATCH, np.uint8)
            found = self._places[place] = memory.view("<u4").reshape(-1, wire.UNIT // 4)
        return found


def batches_of(stripes: Ints, granted: Ints, tail: U32s, room: int) -> list[list[Part]]:
    """The parts of stripes that are copied together.

    Args:
        stripes: (n,) which ones.
        granted, tail: every stripe's units that may be in slabs, and where they begin.
        room: units of a batch.
    """
    batches: list[list[Part]] = []
    used = 0
    for stripe in stripes.tolist():
        units = int(granted[stripe])
        cut = min(units, room)
        if not batches or used + cut > room:
            batches.append([])
            used = 0
        batches[-1].append(Part(stripe, int(tail[stripe]), cut, cut == units))
        used += cut
    return batches


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
