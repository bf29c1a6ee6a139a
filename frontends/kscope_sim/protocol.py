"""The device's side of the claim protocol, step by step: the reference for every frontend's instructions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kscope.capture import layout
from kscope.capture.layout import Kind

from .memory import U32, Memory


@dataclass(frozen=True)
class Anchor:
    """Both clocks at one place, read as clock, time, clock. width: the error bound in cycles."""

    clock: int
    time: int
    width: int


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


def sampled(memory: Memory, thread: Thread) -> bool:
    """Whether the gate lets this thread's warp, SM and block record."""
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
    (x, y, z), (nx, ny, _) = thread.ctaid, thread.nctaid
    index = x + nx * (y + ny * z) - int(gate["block_first"])
    magic, u64 = int(gate["block_magic"]), 0xFFFFFFFFFFFFFFFF
    return 0 <= index < int(gate["block_count"]) and (index & U32) * magic & u64 <= (magic - 1) & u64


def claim(memory: Memory, thread: Thread, epoch: int, start: Anchor) -> Slab | None:
    """Claim a slab and write the begin of its header; None if this thread does not record."""
    # off, or not sampled: memory stays unchanged
    if epoch == 0 or not sampled(memory, thread):
        return None
    reserve = int(memory.gate["stripes"])
    own = stripe = min(thread.smid, reserve)
    n = layout.slab_units(thread.log2_records)
    position = at = 0
    for attempt in range(layout.MOST_CLAIMS):
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
        last = attempt + 1 == layout.MOST_CLAIMS
        if n <= room <= units and not last:
            continue
        # full: try the reserve once, and only if it seems to have room; else count the warp as lost
        left = int(memory.stripes["limit"][reserve]) - int(memory.stripes["head"][reserve]) & U32
        if last or stripe == reserve or not n <= left < 1 << 31:
            memory.atom_add(own, "lost", 1)
            return None
        stripe = reserve
    base = int(memory.stripes["base"][stripe]) + at * layout.UNIT
    memory.store(base, _begin(thread, epoch, position, stripe, start))
    return Slab(memory, base, thread.log2_records, bool(thread.flags & layout.FLAG_STOP))


def _begin(thread: Thread, epoch: int, position: int, stripe: int, start: Anchor) -> np.ndarray:
    """Words 0..23 of the header. The words of its end stay zero, as the host cleared them."""
    header = np.zeros(1, layout.HEADER)
    (cx, cy, cz), (gx, gy, gz), (tx, ty, tz) = thread.ctaid, thread.nctaid, thread.ntid
    header["magic"], header["epoch"] = layout.HEADER_WORD, epoch
    header["kernel"], header["grid_id"] = thread.kernel, thread.grid_id
    header["ctaid_x"], header["ctaid_yz"] = cx, cy | cz << 16
    header["nctaid_x"], header["nctaid_yz"] = gx, gy | gz << 16
    header["ntid"] = tx - 1 | ty - 1 << 10 | tz - 1 << 20
    header["place"] = (
        thread.lane
        | thread.warp << layout.WARP_SHIFT
        | thread.log2_records << layout.LOG2_SHIFT
        | thread.flags << layout.FLAG_SHIFT
        | thread.smid << layout.SMID_SHIFT
    )
    header["position"], header["stripe"] = position, stripe
    header["start_clock"], header["start_time"], header["start_width"] = start.clock, start.time, start.width
    words = header.view(np.uint32).reshape(1, -1)
    header["check"] = layout.header_check(words)
    return words[0, :24]


@dataclass
class Slab:
    """A thread's slab and its cursor: the whole state of recording."""

    memory: Memory
    base: int
    log2_records: int
    stop: bool
    off: int = 0  # bytes, never wraps back: off / 16 is the count of all records

    def store(self, name: str, kind: Kind, start: int, end: int, value: int | None = None) -> None:
        """Store one record. Clocks are 64-bit ticks; their low words are stored."""
        capacity = layout.RECORD_BYTES << self.log2_records
        words = (start & U32, layout.record_id(name, kind), end & U32, 0 if value is None else value)
        # ring: the mask wraps, the oldest record is overwritten. stop: a full slab takes no more. Both count.
        if not self.stop or self.off < capacity:
            at = self.base + layout.HEADER_BYTES + (self.off & capacity - 1)
            self.memory.store(at, np.array(words, np.uint32))
        self.off += layout.RECORD_BYTES

    def leave(self, end: Anchor) -> None:
        """Write the header's end: from here on the host may take the slab."""
        count = self.off // layout.RECORD_BYTES
        words = np.array(
            [
                *(end.clock & U32, end.clock >> 32, end.time & U32, end.time >> 32),
                *(end.width, count, 0, layout.DONE_WORD ^ count ^ end.clock & U32),
            ],
            np.uint32,
        )
        self.memory.store(self.base + 24 * 4, words)
