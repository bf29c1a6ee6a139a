"""A host that frees and reuses pool memory while kernels run, by the rule of the protocol.

A region [tail, head) of a ring is free when every slab in it is closed and head - tail - skipped since == the units
of the slabs found. `skipped` is read in an earlier copy than `head`, and the slabs later than both: a claim that is
still under way then makes the sum differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kscope.capture import wire

from .host import STRIPE_OFFSET, Host, Slab

M32 = 0xFFFFFFFF


@dataclass
class Drain:
    """Frees closed slabs in three reads of the device at arbitrary intervals."""

    host: Host
    tails: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)  # at the tail
    collected: list[Slab] = field(default_factory=list)
    freed: int = 0  # units
    _skipped: list[int] = field(default_factory=list)
    _heads: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tails = [ring.head for ring in self.host.pool.rings]
        self.skipped = [ring.skipped for ring in self.host.pool.rings]

    def look(self, phase: int) -> None:
        """phase 0: copy `skipped`; 1: copy `head`; 2: read the slabs, then free and clear closed ones."""
        rows = [self.host.stripe(n) for n in range(len(self.tails))]
        if phase == 0:
            self._skipped = [int(row["skipped"]) for row in rows]
        elif phase == 1:
            self._heads = [int(row["head"]) for row in rows]
        else:
            for n in range(len(rows)):
                self._free(n)

    def _free(self, n: int) -> None:
        head, tail = self._heads[n], self.tails[n]
        claimed = (head - tail) & M32
        mask = self.host.pool.rings[n].units - 1
        slabs = [slab for slab in self.host.slabs() if slab.stripe == n and (slab.at - tail) & mask < claimed]
        if not self.accounted(n, claimed, slabs) or not all(self.closed(slab) for slab in slabs):
            return
        for slab in slabs:
            at, size = slab.address - self.host.rings[n].base, slab.units * wire.UNIT
            self.host.rings[n].data[at : at + size] = bytes(size)
            self.freed += slab.units
        self.collected += slabs
        self.tails[n], self.skipped[n] = head, self._skipped[n]
        limit = (head + self.host.pool.rings[n].units) & M32
        at = self.host.line(n) + STRIPE_OFFSET["limit"]
        self.host.control.data[at : at + 4] = limit.to_bytes(4, "little")

    def accounted(self, n: int, claimed: int, slabs: list[Slab]) -> bool:
        """True if no claim in the region is still under way."""
        return (claimed - (self._skipped[n] - self.skipped[n])) & M32 == sum(slab.units for slab in slabs)

    def closed(self, slab: Slab) -> bool:
        """True if its lane will not write to it any more."""
        return closed(slab)


def closed(slab: Slab) -> bool:
    """The seal is there, and every record that the count has: its id is not 0."""
    return bool(slab.head["seal"] & 0xFF) and bool(np.all(slab.ring["id"][: min(len(slab.ring), slab.count)] != 0))
