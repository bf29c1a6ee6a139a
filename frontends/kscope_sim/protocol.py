"""The device's side of the claim protocol, step by step: the reference for every frontend's instructions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kscope.capture import layout, wire
from kscope.capture.layout import Kind

from .memory import U32, Memory
from .values import Halves

Row = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Anchor:
    """Both clocks at one place, read as clock, time, clock. width: cycles between the clock reads."""

    clock: int
    time: int
    width: int

    @property
    def number(self) -> int:
        """The width as the seal has it: steps of 4 cycles, from 1 on; the greatest number means that or more."""
        return min((1 << wire.WIDTH_BITS) - 1, self.width // wire.WIDTH_CYCLES + 1)


@dataclass(frozen=True)
class Thread:
    """A thread's special registers and its module's constants."""

    kernel: int
    log2_records: int
    flags: int
    grid_id: int
    nctaid: tuple[int, int, int]
    ntid: tuple[int, int, int]
    ctaid: tuple[int, int, int]
    warp: int
    lane: int
    smid: int

    @property
    def block(self) -> int:
        """The linear number of its block."""
        (x, y, z), (nx, ny, _) = self.ctaid, self.nctaid
        return x + nx * (y + ny * z)


def announce(memory: Memory, thread: Thread, epoch: int, time: int) -> None:
    """Write the launch's entry, if the gate is open and this is the first thread of block 0, whether it records
    or not.
    """
    if epoch == 0 or thread.block or thread.warp or thread.lane:
        return
    entry = np.zeros(1, wire.LAUNCH)
    (gx, gy, gz), (tx, ty, tz) = thread.nctaid, thread.ntid
    entry["grid_id"], entry["kernel"] = thread.grid_id, thread.kernel
    entry["nctaid_x"], entry["nctaid_yz"] = gx, gy | gz << 16
    entry["ntid"] = tx - 1 | ty - 1 << 10 | tz - 1 << 20
    entry["time"] = time
    entry["layout"] = thread.log2_records << layout.LOG2_SHIFT | thread.flags << layout.FLAG_SHIFT
    entry["check"] = wire.launch_check(entry, epoch)
    memory.table[thread.grid_id % wire.SLOTS] = entry[0]


def add_flags(memory: Memory, thread: Thread, epoch: int, flags: int) -> None:
    """Add flags to the launch's entry: a compiler sees all marks of a kernel, the simulator those it has reached."""
    slot = thread.grid_id % wire.SLOTS
    entry = memory.table[slot : slot + 1]
    missing = flags << layout.FLAG_SHIFT & ~int(entry["layout"][0])
    if missing and entry["grid_id"][0] == thread.grid_id and entry["check"] == wire.launch_check(entry, epoch):
        entry["layout"] |= np.uint32(missing)
        entry["check"] = wire.launch_check(entry, epoch)


def sampled(memory: Memory, thread: Thread) -> bool:
    """True if the gate lets this thread's warp, SM and block record."""
    gate = memory.gate
    # warp: one bit, and often the only check
    if not int(gate["warp_mask"]) >> thread.warp & 1:
        return False
    if not gate["sampled"]:
        return True
    # SM: one bit
    if not int(gate["sm_mask"][thread.smid // 32]) >> thread.smid % 32 & 1:
        return False
    # block: the linear index, counted from the first block that records, is in range and on the stride
    index = thread.block - int(gate["block_first"])
    magic, u64 = int(gate["block_magic"]), 0xFFFFFFFFFFFFFFFF
    return 0 <= index < int(gate["block_count"]) and (index & U32) * magic & u64 <= (magic - 1) & u64


def claim(memory: Memory, thread: Thread, epoch: int, start: Anchor) -> Slab | None:
    """Claim a slab and write the first row of its head; None if this thread does not record."""
    # off, or not sampled: memory stays unchanged
    if epoch == 0 or not sampled(memory, thread):
        return None
    reserve = int(memory.gate["stripes"])
    own = stripe = min(thread.smid, reserve)
    n = wire.slab_units(thread.log2_records)
    position = at = 0
    for attempt in range(wire.MOST_CLAIMS):
        # the counter runs forever; its low bits are the place in the ring
        position = memory.atom_add(stripe, "head", n)
        units = int(memory.stripes["mask"][stripe]) + 1
        room = int(memory.stripes["limit"][stripe]) - position & U32
        at = position & units - 1
        # granted: the host has freed these units, and they do not wrap around the ring's edge
        if n <= room <= units and at + n <= units:
            break
        # refused: count these units as skipped; after the ring's edge there is room, so claim again
        memory.atom_add(stripe, "skipped", n)
        last = attempt + 1 == wire.MOST_CLAIMS
        if n <= room <= units and not last:
            continue
        # full: try the reserve once, and only if it seems to have room; else count the warp as lost
        left = int(memory.stripes["limit"][reserve]) - int(memory.stripes["head"][reserve]) & U32
        if last or stripe == reserve or not n <= left < 1 << 31:
            memory.atom_add(own, "lost", 1)
            return None
        stripe = reserve
    base = int(memory.stripes["base"][stripe]) + at * wire.UNIT
    memory.store(base, _begin(thread, epoch, start))
    return Slab(memory, base, thread, start)


def _begin(thread: Thread, epoch: int, start: Anchor) -> Row:
    """The head's first row. The second one stays zero, as the host cleared it."""
    who = (
        thread.warp
        | (epoch & 1) << wire.EPOCH_SHIFT
        | thread.smid << wire.SM_SHIFT
        | thread.grid_id % wire.SLOTS << wire.SLOT_SHIFT
    )
    block = thread.lane << wire.LANE_SHIFT | thread.block << wire.BLOCK_SHIFT & U32
    time = start.time >> wire.TIME_SHIFT & (1 << wire.LOG2_SHIFT) - 1
    return np.array([who, block, start.clock & U32, time | thread.log2_records << wire.LOG2_SHIFT], np.uint32)


@dataclass
class Slab:
    """A thread's slab and its cursor: the whole state of recording."""

    memory: Memory
    base: int
    thread: Thread
    start: Anchor
    off: int = 0  # bytes, never wraps back: off / 16 is the count of all records and anchors
    edge: int = field(init=False)  # %clock64 >> STEP_SHIFT at the last anchor
    anchors: int = 0
    entered: int = 0  # regions whose enter was stored

    def __post_init__(self) -> None:
        self.edge = self.start.clock >> wire.STEP_SHIFT

    def enter(self, name: str, clock: int, value: Halves | None = None) -> None:
        """Store the enter of a region in the head's second row."""
        self.entered += 1
        word = np.zeros(1, wire.OPEN)
        word["clock"], word["value"] = clock & U32, 0 if value is None else value.open
        word["id"] = layout.name_hash(name) << 4 | self.entered & wire.SEQUENCE_LOW
        word["sequence"] = self.entered << wire.SEQUENCE_SHIFT & U32
        self.memory.store(self.base + wire.OPEN_AT, word.view(np.uint32))

    def store(self, name: str, kind: Kind, start: int, end: int, value: Halves | None = None) -> None:
        """Store one record, preceded by the high half of its value if needed. Clocks are 64-bit ticks; their low words
        are stored.
        """
        number, held = layout.record_id(name, kind), value or Halves(0)
        rows = [(number & ~15 | layout.MORE, held.more), (number | layout.HAS_MORE, held.word)]
        for word, half in rows if held.more else [(number, held.word)]:
            # ring: the mask wraps, the oldest row is overwritten. stop: a full slab takes no more. Both count.
            if not self._stops or self.off < layout.RECORD_BYTES << self.thread.log2_records:
                self._put(start & U32, word, end & U32, half)
            self.off += layout.RECORD_BYTES

    @property
    def _stops(self) -> bool:
        return bool(self.thread.flags & layout.FLAG_STOP)

    def _put(self, *words: int) -> None:
        capacity = layout.RECORD_BYTES << self.thread.log2_records
        at = self.base + wire.HEAD_BYTES + (self.off & capacity - 1)
        self.memory.store(at, np.array(words, np.uint32))

    def is_anchor_due(self, end: int) -> bool:
        """True if an anchor is due after a record that ends here."""
        if not self.thread.flags & layout.FLAG_ANCHORS:
            return False
        full = self.off >= layout.RECORD_BYTES << self.thread.log2_records
        return (end >> wire.STEP_SHIFT) - self.edge & 0xFFFF >= wire.ANCHOR_STEPS and not (self._stops and full)

    def store_anchor(self, anchor: Anchor) -> None:
        """Add an anchor."""
        self.edge = anchor.clock >> wire.STEP_SHIFT
        self.anchors += 1
        self._put(anchor.clock & U32, layout.ANCHOR_ID, anchor.clock + anchor.width & U32, anchor.time & U32)
        self.off += layout.RECORD_BYTES

    def leave(self, end: Anchor) -> None:
        """Write the head's second row: from here on the host may take the slab."""
        turns = _high_bytes(end) - _high_bytes(self.start) & 0xFFFF
        if self.anchors and not self._stops and self.off > layout.RECORD_BYTES << self.thread.log2_records:
            self._put(end.clock & U32, layout.LAST_ANCHOR_ID, end.clock & U32, self.anchors)
            self.off += layout.RECORD_BYTES
        grid = self.thread.grid_id >> wire.SLOT_BITS & 0xFF
        seal = max(self.start.number, end.number) | grid << wire.GRID_SHIFT | turns << wire.TURNS_SHIFT
        count = self.off // layout.RECORD_BYTES
        row = np.array([end.clock & U32, end.time >> wire.TIME_SHIFT & U32, count, seal], np.uint32)
        self.memory.store(self.base + layout.RECORD_BYTES, row)


def _high_bytes(anchor: Anchor) -> int:
    """The bits of clock and time above the low words that the seal has."""
    return (anchor.clock >> 32 & 0xFF) << 8 | anchor.time >> 32 & 0xFF
