"""The host's half of the device protocol on simulated memory: control block, pool, arming, reading back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from kscope.capture import layout, wire
from kscope.capture.expand import Expander, Lines
from kscope.capture.heads import Units, is_head
from kscope.instrument.recording import AUTO_RECORDS
from kscope.instrument.subset import Subset

from .machine import Dim, Grid, Program, Thread, load
from .memory import Allocation, Memory

M32 = 0xFFFFFFFF
STRIPE_OFFSET: dict[str, int] = {name: wire.STRIPE.offset(name) for name in wire.STRIPE.names}
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
    """One atom.add on a head: the thread got `position`, for `units`; granted by the rule in wire.py.
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
    """A slab as a reader finds it in its ring. `key`: (block x, y, z, linear thread), as Thread.key; `head`, of
    wire.HEAD; `entry`: its launch's, of wire.LAUNCH, None where none is valid; `ring`: all its records."""

    stripe: int
    address: int
    at: int  # units from the ring's begin
    key: tuple[int, int, int, int]
    head: np.void
    entry: np.void | None
    ring: np.ndarray

    @property
    def units(self) -> int:
        return wire.HEAD_UNITS + len(self.ring) // wire.RECORDS_PER_UNIT

    @property
    def count(self) -> int:
        """Records that the lane wrote, 0 before its end."""
        return int(self.head["count"])

    def records(self) -> np.ndarray:
        """The kept records, oldest first (dtype layout.RECORD)."""
        count, size = self.count, len(self.ring)
        if self.entry is None or count <= size or int(self.entry["layout"]) >> layout.FLAG_SHIFT & layout.FLAG_STOP:
            return self.ring[: min(count, size)]
        return np.roll(self.ring, -(count % size))


class Host:
    """A device with one control block and one pool, armed with `epoch` (0: not armed).

    survive: the launch table is not behind the stripes, but where the gate says, as in a pool's file.
    """

    def __init__(
        self, pool: Pool, subset: Subset | None = None, epoch: int = 7, records: int = AUTO_RECORDS,
        survive: bool = False,
    ) -> None:  # fmt: skip
        self.pool, self.subset, self.epoch = pool, subset or Subset(), epoch
        self.blocks: dict[int, Dim] = {}  # of the launches, by the low bits of their linear numbers
        self.memory = Memory()
        size, at = wire.SLOTS * wire.LAUNCH_BYTES, wire.table_offset(pool.stripes)
        self.control = self.memory.allocate("control", at if survive else at + size)
        self._table, self._table_at = self.control, at
        if survive:
            self._table, self._table_at = self.memory.allocate("launch table", size), 0
        self.launches = range(self._table.base + self._table_at, self._table.base + self._table_at + size)
        self.rings: list[Allocation] = []
        at = RING_BASE
        for number, ring in enumerate(pool.rings):
            size = ring.units * wire.UNIT
            # every other ring is as near to the end of its segment as a host may place it
            base = at if number % 2 else at + wire.SEGMENT_BYTES - size
            self.rings.append(self.memory.allocate(f"ring {number}", size, align=max(size, 256), base=base))
            at += wire.SEGMENT_BYTES
        gate = self.subset.gate(epoch, pool.stripes)
        gate["launches"] = self.launches.start
        self.control.data[: wire.GATE_BYTES] = gate.tobytes()
        sizes = np.full(wire.SIZES, records - 1, np.uint32)
        self.control.data[wire.SIZES_AT : wire.STRIPES_AT] = sizes.tobytes()
        for number, ring in enumerate(pool.rings):
            row = np.zeros((), wire.STRIPE)
            row["head"], row["limit"], row["skipped"] = ring.head, ring.limit, ring.skipped
            row["base"], row["mask"] = self.rings[number].base, ring.units - 1
            at = self.line(number)
            self.control.data[at : at + wire.STRIPE_BYTES] = row.tobytes()

    @staticmethod
    def line(stripe: int) -> int:
        """Offset of a stripe in the control block."""
        return wire.STRIPES_AT + stripe * wire.STRIPE_BYTES

    def load(self, text: str, *, bound: bool = True) -> Program:
        """Load a module; bound=False leaves it as one that was never armed (kscope_ctl holds 0)."""
        program = load(text, self.memory)
        if bound and wire.CTL_SYMBOL in program.symbols:
            found, at = self.memory.find(program.symbols[wire.CTL_SYMBOL], 8, "const", 0, "host")
            found.data[at : at + 8] = self.control.base.to_bytes(8, "little")
        return program

    def stripe(self, number: int) -> np.void:
        """A stripe's line as it is now."""
        at = self.line(number)
        row = np.frombuffer(bytes(self.control.data[at : at + wire.STRIPE_BYTES]), wire.STRIPE)[0]
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
            ample, fits = units <= room <= ring.units, at + units <= ring.units
            address = self.rings[n].base + at * wire.UNIT
            found.append(Claim(access.thread, n, access.old, units, ample and fits, ample and not fits, address))
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

    def launched(self, shape: Grid, blocks: Iterable[Dim]) -> None:
        """Note the blocks of a launch: a head has only the low bits of its block's number."""
        nx, ny, _ = shape.grid
        for x, y, z in blocks:
            self.blocks[(x + nx * (y + ny * z)) % (1 << wire.BLOCK_BITS)] = x, y, z

    def sizes(self) -> np.ndarray:
        """The words with the sizes of slabs as they are now."""
        return np.frombuffer(self.control.data, np.uint32, wire.SIZES, wire.SIZES_AT).copy()

    def table(self) -> np.ndarray:
        """The launch table as it is now, (SLOTS,) wire.LAUNCH."""
        return np.frombuffer(self._table.data, wire.LAUNCH, wire.SLOTS, self._table_at)

    def units(self, stripe: int) -> Units:
        """A stripe's ring as it is now, (n, 8)."""
        return np.frombuffer(bytes(self.rings[stripe].data), np.uint32).reshape(-1, wire.UNIT // 4)

    def slabs(self) -> list[Slab]:
        """Every slab, found by walking the rings unit by unit."""
        return [slab for n in range(len(self.rings)) for slab in self._slabs_in(n)]

    def _slabs_in(self, stripe: int) -> list[Slab]:
        units, table, found = self.units(stripe), self.table(), []
        for at in np.flatnonzero(is_head(units)).tolist():
            head = units[at].view(wire.HEAD)[0]
            entry = self.entry_of(head, table)
            log2 = int(head["start_time"]) >> wire.LOG2_SHIFT
            records = units[at + 1 : at + wire.slab_units(log2)].reshape(-1).view(layout.RECORD)
            address = self.rings[stripe].base + at * wire.UNIT
            found.append(Slab(stripe, address, at, self._key(head), head, entry, records))
        return found

    def entry_of(self, head: np.void, table: np.ndarray) -> np.void | None:
        """The entry of a head's launch, if it is this session's and, where the lane has finished, that launch's."""
        entry = table[int(head["who"]) >> wire.SLOT_SHIFT].copy()
        if entry["check"] != wire.launch_check(entry[None], self.epoch)[0]:
            return None
        bits = int(entry["grid_id"]) >> wire.SLOT_BITS & 0xFF
        return entry if not int(head["seal"]) & 0xFF or int(head["seal"]) >> wire.GRID_SHIFT & 0xFF == bits else None

    def _key(self, head: np.void) -> tuple[int, int, int, int]:
        who, block = int(head["who"]), int(head["block"])
        linear = (who & 31) * 32 + (block >> wire.LANE_SHIFT & 31)
        low = block >> wire.BLOCK_SHIFT  # the whole number, if the test noted no blocks
        return (*self.blocks.get(low, (low, 0, 0)), linear)

    def lines(self) -> Lines:
        """All slabs as a capture has them."""
        slabs, offsets = [slab for slab in self.slabs() if slab.entry is not None], self.offsets()
        return Expander(self.epoch).expand(
            np.concatenate([self.units(n) for n in range(len(self.rings))]),
            np.array([offsets[slab.stripe] + slab.at for slab in slabs], np.int64),
            np.array([slab.entry for slab in slabs], wire.LAUNCH),
            np.array([slab.stripe for slab in slabs], np.uint32),
            np.array([slab.at for slab in slabs], np.uint32),
        )

    def offsets(self) -> list[int]:
        """Units before each ring, in the order of the rings."""
        return [0, *accumulate(ring.units for ring in self.pool.rings)]
