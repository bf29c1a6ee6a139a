"""Slabs of the wire layout, word by word, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kscope.capture import layout, wire
from kscope.capture.clock_rows import Layouts
from kscope.capture.expand import Expander, Lines
from kscope.capture.heads import Launches, is_head, sizes, valid, without_overlap
from kscope.capture.model import Problem

EPOCH = 7
KERNEL = 0x1234_5678_9ABC_DEF0
TIME = 1_700_000_000_000_000_000
Units = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Head:
    """The fields of one warp's head. clock, time: the start anchor; cycles, ns: from there to the end, None:
    unfinished.
    """

    grid: int = 1
    block: int = 0
    warp: int = 0
    lane: int = 0
    sm: int = 0
    epoch: int = EPOCH
    clock: int = 1000
    time: int = TIME
    cycles: int | None = 500
    ns: int = 320
    width: int = 1
    count: int | None = None

    def words(self, log2: int, records: int) -> list[int]:
        """The eight words; `records` is the count of a finished slab whose count is not given."""
        who = self.warp | (self.epoch & 1) << wire.EPOCH_SHIFT | self.sm << wire.SM_SHIFT
        who |= (self.grid & wire.SLOTS - 1) << wire.SLOT_SHIFT
        block = self.lane << wire.LANE_SHIFT | self.block % (1 << wire.BLOCK_BITS) << wire.BLOCK_SHIFT
        time = self.time >> wire.TIME_SHIFT & (1 << wire.LOG2_SHIFT) - 1
        first = [who, block, self.clock & 0xFFFFFFFF, time | log2 << wire.LOG2_SHIFT]
        if self.cycles is None:
            return [*first, 0, 0, 0, 0]
        clock, end = self.clock + self.cycles, self.time + self.ns
        turns = _high(clock, end) - _high(self.clock, self.time) & 0xFFFF
        grid = self.grid >> wire.SLOT_BITS & 0xFF
        seal = self.width | grid << wire.GRID_SHIFT | turns << wire.TURNS_SHIFT
        count = records if self.count is None else self.count
        return [*first, clock & 0xFFFFFFFF, end >> wire.TIME_SHIFT & 0xFFFFFFFF, count, seal]


def _high(clock: int, time: int) -> int:
    return (clock >> 32 & 255) << 8 | time >> 32 & 255


@dataclass(frozen=True)
class Entry:
    """A launch's entry in the table."""

    grid: int = 1
    log2: int = 2
    flags: int = 0
    blocks: tuple[int, int, int] = (8, 1, 1)
    threads: tuple[int, int, int] = (128, 1, 1)
    cluster: tuple[int, int, int] = (0, 0, 0)
    time: int = TIME
    kernel: int = KERNEL
    epoch: int = EPOCH
    wrong: int = field(default=0)  # xor-ed with the check

    def row(self) -> np.ndarray:
        """() wire.LAUNCH."""
        found = np.zeros(1, wire.LAUNCH)
        (nx, ny, nz), (tx, ty, tz), (cx, cy, cz) = self.blocks, self.threads, self.cluster
        found["grid_id"], found["kernel"], found["time"] = self.grid, self.kernel, self.time
        found["nctaid_x"], found["nctaid_yz"] = nx, ny | nz << 16
        found["ntid"] = tx - 1 | ty - 1 << 10 | tz - 1 << 20
        found["cluster"] = cx << 8 | cy << 16 | cz << 24
        found["layout"] = self.log2 << layout.LOG2_SHIFT | self.flags << layout.FLAG_SHIFT
        found["check"] = wire.launch_check(found, self.epoch) ^ np.uint32(self.wrong)
        row: np.ndarray = found[0]
        return row


def table(*entries: Entry) -> np.ndarray:
    """(wire.SLOTS,) wire.LAUNCH with these entries."""
    found = np.zeros(wire.SLOTS, wire.LAUNCH)
    for entry in entries:
        found[entry.grid % wire.SLOTS] = entry.row()
    return found


def slab(head: Head, log2: int = 2, records: Sequence[Sequence[int]] = ()) -> Units:
    """The units of one slab, (1 + 2^(log2 - 1), 8) uint32; records: four words each, from the first place on."""
    units = np.zeros((wire.slab_units(log2), wire.UNIT // 4), np.uint32)
    units[0] = np.array(head.words(log2, len(records)), np.uint64).astype(np.uint32)
    rows = units.reshape(-1, 4)[2:]
    for place, words in enumerate(records):
        rows[place % len(rows)] = words
    return units


def expand_all(
    units: Units, launches: Launches, epoch: int, stripe: int = 0, first: int = 0, layouts: Layouts | None = None
) -> tuple[Lines, list[Problem]]:
    """Expand every slab among contiguous units, while nothing writes to them, of a device whose clocks began at 0.

    Args:
        units: (n, 8) uint32.
        launches: (wire.SLOTS,) wire.LAUNCH, the launch table.
        epoch: the session.
        stripe: index of the stripe.
        first: position of the first unit.
        layouts: those that are known, of rows with three clocks.

    Returns:
        The capture's lines, and a problem if heads were left out.
    """
    at = np.flatnonzero(is_head(units))
    entries = launches[units[at, 0] >> np.uint32(wire.SLOT_SHIFT)]
    known = valid(units[at], entries, epoch) & (at + sizes(units[at]) <= len(units))
    mine = np.flatnonzero(without_overlap(at, np.where(known, sizes(units[at]), 1)))
    expander = Expander(epoch, first_turn=0, layouts=layouts)
    position = (at[mine] + first).astype(np.uint32)
    lines = expander.expand(units, at[mine], entries[mine], np.full(len(mine), stripe, np.uint32), position)
    return lines, expander.problems()
