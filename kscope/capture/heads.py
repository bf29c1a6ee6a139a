"""Reads the heads of wire slabs (wire.py): which units are heads, their launches, and their full times."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..util.arrays import Bools
from . import layout, wire

Units = npt.NDArray[np.uint32]
"""(n, 8): units of 32 bytes."""
Launches = np.ndarray
"""(n,) wire.LAUNCH."""
U32s = npt.NDArray[np.uint32]
U64s = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

_EARLIER_NS, _UNFINISHED_EARLIER_NS = 1 << 35, 1 << 30
"""A warp starts at most 34 s before its launch's time (if that is a later replay's), and at most 103 s after it; an
unfinished one at most 1.1 s before and 3.2 s after it."""
_LOW = np.uint64(0xFFFFFFFF)


def is_head(units: Units) -> Bools:
    """True for units that look like the head of a slab, (n,) bool: neither cleared memory nor records do."""
    return np.asarray(units[:, :4].any(axis=1) & (units[:, 1] & np.uint32(15) == 0))


def without_overlap(at: Ints, size: Ints) -> Bools:
    """True for slabs, ascending by first unit, that do not overlap an earlier one. Only damaged memory has others."""
    ends = at + size
    kept = np.ones(len(at), bool)
    if len(at) and (at[1:] < np.maximum.accumulate(ends)[:-1]).any():
        end = 0
        for index, (first, last) in enumerate(zip(at.tolist(), ends.tolist(), strict=True)):
            kept[index] = first >= end
            end = last if first >= end else end
    return kept


def log2_of(heads: Units) -> Ints:
    """log2 of the records that wire slabs have room for."""
    return np.asarray(heads[:, 3] >> np.uint32(wire.LOG2_SHIFT), np.int64)


def sizes(heads: Units) -> Ints:
    """Units of wire slabs."""
    return wire.HEAD_UNITS + (1 << log2_of(heads)) // wire.RECORDS_PER_UNIT


def finished(heads: Units) -> Bools:
    """True for heads with their end, (n,). The second row of an unfinished one is 0, or an open word (wire.OPEN)."""
    return np.asarray(heads[:, 7] & np.uint32((1 << wire.WIDTH_BITS) - 1) != 0)


def valid(heads: Units, entries: Launches, epoch: int) -> Bools:
    """True for entries of the head's launch, under the session `epoch`. Of an unfinished slab only the low 16 bits of
    the launch's number are known.
    """
    log2, grid, seal = log2_of(heads), entries["grid_id"], heads[:, 7]
    good = wire.launch_check(entries, epoch) == entries["check"]
    good &= (log2 >= layout.MIN_LOG2_RECORDS) & (log2 <= layout.MAX_LOG2_RECORDS)
    size = (entries["layout"] >> np.uint32(layout.LOG2_SHIFT) & np.uint32(31)).astype(np.int64)
    good &= (size == wire.VARYING) | (size == log2)
    good &= (grid & np.uint64(wire.SLOTS - 1)).astype(np.uint32) == heads[:, 0] >> np.uint32(wire.SLOT_SHIFT)
    bits = (grid >> np.uint64(wire.SLOT_BITS) & np.uint64(0xFF)).astype(np.uint32)
    good &= ~finished(heads) | (seal >> np.uint32(wire.GRID_SHIFT) & np.uint32(0xFF) == bits)
    return np.asarray(good)


def foreign(heads: Units, epoch: int) -> Bools:
    """True for heads of another session."""
    return np.asarray(heads[:, 0] >> np.uint32(wire.EPOCH_SHIFT) & np.uint32(1) != epoch & 1)


def has_more_blocks(launches: Launches) -> Bools:
    """True for launches with more blocks than a head can number."""
    nx, yz = launches["nctaid_x"].astype(np.float64), launches["nctaid_yz"]
    return np.asarray(nx * (yz & np.uint32(0xFFFF)) * (yz >> np.uint32(16)) > 1 << wire.BLOCK_BITS)


def clock_cycles(heads: Units, start: U64s) -> U64s:
    """Cycles from the start's clock to the end's, of finished slabs. start: (s,) ns."""
    began, seal = (start >> np.uint64(32)).astype(np.uint32) & np.uint32(0xFF), heads[:, 7]
    # the seal's difference is of both high bytes at once: the time's lower one may have borrowed
    borrowed = began + (seal >> np.uint32(wire.TURNS_SHIFT) & np.uint32(0xFF)) >> np.uint32(8)
    turns = (seal >> np.uint32(wire.TURNS_SHIFT + 8)) + borrowed & np.uint32(0xFF)
    start_low, end_low = (heads[:, word].astype(np.uint64) for word in (2, 4))
    return np.asarray((turns.astype(np.uint64) << np.uint64(32)) + end_low - start_low)


def times(heads: Units, entries: Launches) -> tuple[U64s, U64s]:
    """%globaltimer at the start and at the end, ns; the latter for finished slabs.

    A finished slab has 37 bits of its end and 40 bits of its duration, an unfinished one 32 bits of its start. The
    launch's time has the others. Where records are times, the end is rounded up: none of them may be after it.
    """
    shift, seal = np.uint64(wire.TIME_SHIFT), heads[:, 7]
    low = heads[:, 3].astype(np.uint64) << shift & _LOW
    end = heads[:, 5].astype(np.uint64) << shift
    turns = (seal >> np.uint32(wire.TURNS_SHIFT) & np.uint32(0xFF)).astype(np.uint64) << np.uint64(32)
    lasted = turns + (end & _LOW) - low & np.uint64((1 << 40) - 1)
    ended = _after(entries["time"], end - lasted, 37, _EARLIER_NS)
    start = np.where(finished(heads), ended, _after(entries["time"], low, 32, _UNFINISHED_EARLIER_NS))
    timer = entries["layout"] >> np.uint32(layout.FLAG_SHIFT) & np.uint32(layout.FLAG_GLOBALTIMER) != 0
    return start, start + lasted + np.where(timer, np.uint64((1 << wire.TIME_SHIFT) - 1), np.uint64(0))


def _after(time: U64s, low: U64s, bits: int, earlier: int) -> U64s:
    """The first times that end in the low bits, from `earlier` ns before others on, and from 0 on."""
    from_ = time - np.minimum(time, np.uint64(earlier))
    return np.asarray(from_ + (low - from_ & np.uint64((1 << bits) - 1)))
