"""Pinned memory, which batches of parts of stripes are copied to."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from kscope.capture import wire
from kscope.errors import DriverError

from .device import Device
from .driver import Memory
from .ranges import in_rings
from .slab_search import Ints, Pieces, U32s, Units

BATCH, PLACES = (24 << 20) + wire.HEAD_BYTES, 3
"""Bytes of a batch of parts, which the largest slab fits into, and batches in staging memory: the device fills one, the
host accounts for another, and writes the third to the arena."""


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

    def fetch(self, batch: Pieces, place: int) -> Units:
        """Copy the parts to a place, which arrived() waits for. Returns the copy."""
        units = np.asarray(self._place(place)[: int(batch.first[-1])])
        ranges = in_rings(self._device.table[batch.stripe], batch.tail, batch.units)
        self.memory.read_ranges(units.reshape(-1).view(np.uint8), ranges, self.stream)
        return units

    def _place(self, place: int) -> Units:
        """A place's memory. It is pinned when the drain first needs it, because that takes long."""
        found = self._places[place]
        if found is None:
            try:
                memory = self._device.driver.pinned(BATCH)
            except DriverError:  # the context is broken: what it left is read without the driver
                memory = np.empty(BATCH, np.uint8)
            found = self._places[place] = memory.view("<u4").reshape(-1, wire.UNIT // 4)
        return found


def batches_of(stripes: Ints, granted: Ints, tail: U32s, skipped: U32s, head: U32s, room: int) -> list[Pieces]:
    """The parts of stripes that are copied together.

    Args:
        stripes: (n,) which ones.
        granted, tail: every stripe's units that may be in slabs, and where they begin.
        skipped, head: every stripe's.
        room: units of a batch.
    """
    cut, opens, used = np.minimum(granted[stripes], room), list[int](), 0
    for part, more in enumerate(cut.tolist()):
        if not opens or used + more > room:
            opens.append(part)
            used = 0
        used += more

    def batch(first: int, stop: int) -> Pieces:
        which, units = stripes[first:stop], cut[first:stop]
        return Pieces.of(which, tail[which], units, units == granted[which], skipped[which], head[which])

    return [batch(*bounds) for bounds in pairwise([*opens, len(stripes)])]
