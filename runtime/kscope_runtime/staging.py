"""Pinned memory for batches of parts of stripes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kscope.capture import wire
from kscope.errors import DriverError

from .device import Device
from .driver import Memory
from .driver_calls import DriverCalls
from .memory_ranges import in_rings
from .slab_search import Ints, Pieces, U32s, Units

BATCH, PLACES = (24 << 20) + wire.HEAD_BYTES, 3
"""Bytes of a batch of parts, enough for the largest slab, and number of batches in staging memory: the device fills
one, the host accounts for another, and writes the third to the arena.
"""


@dataclass(frozen=True)
class Batches:
    """Parts of stripes that are copied together.

    Attributes:
        parts: all of them, as if they were in one copy.
        bounds: first part of each batch, and their number.
    """

    parts: Pieces
    bounds: list[int]

    @staticmethod
    def of(stripes: Ints, granted: Ints, tail: U32s, skipped: U32s, head: U32s, room: int) -> Batches:
        """Divide stripes.

        Args:
            stripes: (n,) indices.
            granted, tail: every stripe's units that may be in slabs, and their begin.
            skipped, head: every stripe's.
            room: units of a batch.
        """
        cut, bounds, used = np.minimum(granted[stripes], room), list[int](), 0
        for part, more in enumerate(cut.tolist()):
            if not bounds or used + more > room:
                bounds.append(part)
                used = 0
            used += more
        which = tail[stripes], cut, cut == granted[stripes], skipped[stripes], head[stripes]
        return Batches(Pieces.of(stripes, *which), [*bounds, len(stripes)])

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> Pieces:
        some, units = slice(*self.bounds[index : index + 2]), self.parts.units
        columns = (getattr(self.parts, name)[some] for name in ("whole", "skipped", "head"))
        return Pieces.of(self.parts.stripe[some], self.parts.tail[some], units[some], *columns)


class Staging:
    """Staging memory with room for several batches.

    Args:
        device: its rings, and its driver for pinned memory and a stream.

    Attributes:
        memory: source of the reads.
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
        units = self.copied(batch, place)
        ranges = in_rings(self._device.table[batch.stripe], batch.tail, batch.units)
        self.memory.read_ranges(units.reshape(-1).view(np.uint8), ranges, self.stream)
        return units

    def copies(self, batches: Batches, calls: DriverCalls) -> Iterator[tuple[Pieces, Units]]:
        """Yield batches and their copies, each in the next place; one more is in flight."""
        copies: list[Units] = []
        for index in range(len(batches)):
            if not index:
                copies.append(self.fetch(batches[0], 0))
                calls.wait(self.stream)
            if index + 1 < len(batches):
                copies.append(self.fetch(batches[index + 1], (index + 1) % PLACES))
            calls.flush()  # a reading of the stripes waits for this batch
            yield batches[index], copies[index]

    def copied(self, batch: Pieces, index: int) -> Units:
        """The memory for a copy of parts. index: of the batch, each in the next place."""
        return np.asarray(self.place(index % PLACES)[: int(batch.first[-1])])

    def place(self, place: int) -> Units:
        """A place's memory. It is pinned when the drain first needs it, because that takes long."""
        found = self._places[place]
        if found is None:
            try:
                memory = self._device.driver.pinned(BATCH)
            except DriverError:  # the context is broken: its memory is read without the driver
                memory = np.empty(BATCH, np.uint8)
            found = self._places[place] = memory.view("<u4").reshape(-1, wire.UNIT // 4)
        return found
