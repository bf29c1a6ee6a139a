"""The host's half of the device protocol on simulated memory: control block, pool, arming, reading back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kscope.capture import layout
from kscope.instrument.sampling import Sampling

from .machine import Program, Thread, load
from .memory import Allocation, Memory

M32 = 0xFFFFFFFF
STRIPE_OFFSET: dict[str, int] = {name: layout.STRIPE.fields[name][1] for name in layout.STRIPE.names or ()}  # type: ignore[index]  # fields is there where names are
"""The offset of each word of a stripe's line."""
RING_BASE = 0x7F80_0000_0000


@dataclass(frozen=True)
class Ring:
    """One stripe's ring at the start: 2^log2 units, `head` units claimed in its past, `free` of them granted
    from there on (at most its size; less where the host has not yet cleared older slabs)."""

    log2: int
    head: int = 0
    free: int | None = None
    skipped: int = 0

    @property
    def units(self) -> int:
        return 1 << self.log2

    @property
    def limit(self) -> int:
        return (self.head + (self.units if self.free is None else self.free)) & M32


@dataclass(frozen=True)
class Pool:
    """A ring per stripe and, last, the reserve."""

    rings: tuple[Ring, ...]

    @property
    def stripes(self) -> int:
        return len(self.rings) - 1


@dataclass(frozen=True)
class Claim:
    """One atom.add on a head: the thread got `position`, for `units`; granted by the rule in layout.py.
    `edge`: there was room, and only the ring's edge was in the way."""

    thread: Thread
    stripe: int
    position: int
    units: int
    granted: bool
    edge: bool
    address: int  # of the slab, where granted


@dataclass(frozen=True)
class Slab:
    """A slab as a reader finds it in its ring. `words`: its 32 header words; `ring`: all its records."""

    stripe: int
    address: int
    words: np.ndarray
    header: np.void
    ring: np.ndarray

    @property
    def units(self) -> int:
        return layout.HEADER_UNITS + len(self.ring) // layout.RECORDS_PER_UNIT

    @property
    def key(self) -> tuple[int, int, int, int]:
        """(block x, y, z, linear thread), as Thread.key."""
        place, yz = int(self.header["place"]), int(self.header["ctaid_yz"])
        linear = (place >> layout.WARP_SHIFT & 31) * 32 + (place & 31)
        return int(self.header["ctaid_x"]), yz & 0xFFFF, yz >> 16, linear

    def records(self) -> np.ndarray:
        """What is kept, oldest first (dtype layout.RECORD)."""
        count, size = int(self.header["count"]), len(self.ring)
        if count <= size or int(self.header["place"]) >> layout.FLAG_SHIFT & layout.FLAG_STOP:
            return self.ring[: min(count, size)]
        return np.roll(self.ring, -(count % size))


class Host:
    """A device with one control block and one pool, armed with `epoch` (0: not armed)."""

    def __init__(self, pool: Pool, sampling: Sampling | None = None, epoch: int = 7) -> None:
        self.pool, self.sampling, self.epoch = pool, sampling or Sampling(), epoch
        self.memory = Memory()
        self.control = self.memory.allocate("control", layout.control_bytes(pool.stripes))
        self.rings: list[Allocation] = []
        at = RING_BASE
        for number, ring in enumerate(pool.rings):
            size = ring.units * layout.UNIT
            # every other ring is as near to the end of its segment as a host may place it
            base = at if number % 2 else at + layout.SEGMENT_BYTES - size
            self.rings.append(self.memory.allocate(f"ring {number}", size, align=max(size, 256), base=base))
            at += layout.SEGMENT_BYTES
        gate = self.sampling.gate(epoch, pool.stripes)
        self.control.data[: layout.GATE_BYTES] = gate.tobytes()
        for number, ring in enumerate(pool.rings):
            row = np.zeros((), layout.STRIPE)
            row["head"], row["limit"], row["skipped"] = ring.head, ring.limit, ring.skipped
            row["base"], row["mask"] = self.rings[number].base, ring.units - 1
            at = self.line(number)
            self.control.data[at : at + layout.STRIPE_BYTES] = row.tobytes()

    @staticmethod
    def line(stripe: int) -> int:
        """Offset of a stripe in the control block."""
        return layout.GATE_BYTES + stripe * layout.STRIPE_BYTES

    def load(self, text: str, *, bound: bool = True) -> Program:
        """Load a module; bound=False leaves it as one that was never armed (kscope_ctl holds 0)."""
        program = load(text, self.memory)
        if bound and layout.CTL_SYMBOL in program.symbols:
            found, at = self.memory.find(program.symbols[layout.CTL_SYMBOL], 8, "const", 0, "host")
            found.data[at : at + 8] = self.control.base.to_bytes(8, "little")
        return program

    def stripe(self, number: int) -> np.void:
        """A stripe's line as it is now."""
        at = self.line(number)
        row = np.frombuffer(bytes(self.control.data[at : at + layout.STRIPE_BYTES]), layout.STRIPE)[0]
        assert isinstance(row, np.void)
        return row

    def claims(self) -> list[Claim]:
        """Every claim that was made, in order, with the verdict that the rule gives it: granted where
        units <= limit - position <= mask + 1 and the slab does not run over the ring's edge."""
        heads = {self.control.base + self.line(n) + STRIPE_OFFSET["head"]: n for n in range(len(self.rings))}
        found = []
        for access in self.memory.log:
            if access.op != "add" or access.address not in heads:
                continue
            n = heads[access.address]
            ring, units = self.pool.rings[n], access.value
            room, at = (ring.limit - access.old) & M32, access.old % ring.units
            roomy, fits = units <= room <= ring.units, at + units <= ring.units
            address = self.rings[n].base + at * layout.UNIT
            found.append(Claim(access.thread, n, access.old, units, roomy and fits, roomy and not fits, address))
        return found

    def room_when_lost(self) -> dict[Thread, int]:
        """For each lost lane: the free units of the reserve at that time."""
        lost = {self.control.base + self.line(n) + STRIPE_OFFSET["lost"] for n in range(len(self.rings))}
        reserve = self.pool.rings[-1]
        at, head, found = self.control.base + self.line(self.pool.stripes) + STRIPE_OFFSET["head"], reserve.head, {}
        for access in self.memory.log:
            if access.op == "add" and access.address == at:
                head = access.old + access.value
            elif access.op == "add" and access.address in lost:
                room = (reserve.limit - head) & M32
                found[access.thread] = room - (1 << 32) if room >> 31 else room
        return found

    def slabs(self) -> list[Slab]:
        """Every slab with a valid check word, found by walking the rings unit by unit."""
        return [slab for n, ring in enumerate(self.rings) for slab in slabs_in(bytes(ring.data), n, ring.base)]


def slabs_in(data: bytes, stripe: int = 0, base: int = 0) -> list[Slab]:
    """Every slab with a valid check word in these bytes at address `base`."""
    found, at = [], 0
    while at + layout.HEADER_BYTES <= len(data):
        slab = _slab(data, at, stripe, base)
        if slab is not None:
            found.append(slab)
        at += slab.units * layout.UNIT if slab else layout.UNIT
    return found


def _slab(data: bytes, at: int, stripe: int, base: int) -> Slab | None:
    words = np.frombuffer(data[at : at + layout.HEADER_BYTES], "<u4")
    if words[0] != layout.HEADER_WORD or layout.header_check(words[None])[0] != words[15]:
        return None
    header = words.view(layout.HEADER)[0]
    log2, first = int(header["place"]) >> layout.LOG2_SHIFT & 31, at + layout.HEADER_BYTES
    records = np.frombuffer(data[first : first + (layout.RECORD_BYTES << log2)], layout.RECORD)
    return Slab(stripe, base + at, words, header, records)
