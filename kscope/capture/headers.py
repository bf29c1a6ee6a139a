"""Headers of a capture's slabs, from heads and entries of launches, in numpy; native/expand.c does the same."""

from __future__ import annotations

import numpy as np

from . import layout, wire
from .heads import Ints, Launches, U32s, U64s, Units, clock_cycles, finished, times

_LONGEST_WIDTH = 0xFFFFFFFF
"""The width of an anchor that bounds nothing: its two clock reads are far apart."""


def headers(heads: Units, entries: Launches, room: Ints, start_clock: U64s, count: U32s, epoch: int) -> np.ndarray:
    """(s,) layout.HEADER, without the claims' fields, and unchecked.

    Args:
        heads, entries, start_clock: of the slabs.
        room: records that they have room for.
        count: records that finished ones wrote.
        epoch: the session.
    """
    who, block, seal = heads[:, 0], heads[:, 1] >> np.uint32(wire.BLOCK_SHIFT), heads[:, 7]
    lane = heads[:, 1] >> np.uint32(wire.LANE_SHIFT) & np.uint32(31)
    smid = who >> np.uint32(wire.SM_SHIFT) & np.uint32((1 << wire.SM_BITS) - 1)
    log2 = (np.frexp(room.astype(np.float64))[1] - 1).astype(np.uint32)
    flags = entries["layout"] & np.uint32(((1 << layout.SMID_SHIFT - layout.FLAG_SHIFT) - 1) << layout.FLAG_SHIFT)
    x, y, z = _block(block, entries)
    start_time, end_time = times(heads, entries)
    header = np.zeros(len(heads), layout.HEADER)
    header["magic"], header["epoch"] = layout.HEADER_WORD, epoch
    for name in ("kernel", "grid_id", "nctaid_x", "nctaid_yz", "ntid"):
        header[name] = entries[name]
    header["ctaid_x"], header["ctaid_yz"] = x, y | z << np.uint32(16)
    header["place"] = lane | (who & np.uint32(31)) << np.uint32(layout.WARP_SHIFT) | flags
    header["place"] |= log2 << np.uint32(layout.LOG2_SHIFT) | smid << np.uint32(layout.SMID_SHIFT)
    header["cluster"] = _cluster(x, y, z, entries["cluster"])
    header["start_clock"], header["start_time"] = start_clock, start_time
    done = finished(heads)
    header["start_width"] = _width(np.where(done, seal, 0))
    end_clock = header["start_clock"] + clock_cycles(heads, start_time)
    low = end_clock.astype(np.uint32)
    header["end_clock"], header["end_time"] = np.where(done, end_clock, 0), np.where(done, end_time, 0)
    header["end_width"] = np.where(done, header["start_width"], 0)
    header["count"] = np.where(done, count, 0)
    header["done"] = np.where(done, np.uint32(layout.DONE_WORD) ^ count ^ low, 0)
    return header


def anchors(rows: Units, kept: Ints, heads: Units, entries: Launches) -> U32s:
    """(s,) HEADER["anchors"], of slabs without rows of three clocks.

    Args:
        rows: (r, 4) uint32, the rows that the slabs keep, slab after slab.
        kept: (s,) number of rows of each slab.
        heads, entries: of the slabs.
    """
    found = np.zeros(len(heads), np.uint32)
    may = entries["layout"] >> np.uint32(layout.FLAG_SHIFT) & np.uint32(layout.FLAG_ANCHORS) != 0
    if not may.any():
        return found
    behind = np.cumsum(kept)
    before = np.append(0, np.cumsum(rows[:, 1] == layout.ANCHOR_ID))
    found[may] = (before[behind] - before[behind - kept])[may]
    ring = entries["layout"] >> np.uint32(layout.FLAG_SHIFT) & np.uint32(layout.FLAG_STOP) == 0
    for slab in np.flatnonzero(may & ring & finished(heads) & (heads[:, 6] > kept) & (kept > 0)).tolist():
        last = rows[behind[slab] - kept[slab] + (int(heads[slab, 6]) - 1) % int(kept[slab])]
        found[slab] = int(last[3]) + 1 & 0xFFFFFFFF if last[1] == layout.LAST_ANCHOR_ID else 0
    return found


def _block(block: U32s, entries: Launches) -> tuple[U32s, U32s, U32s]:
    """%ctaid of the linear blocks, x fastest."""
    nx = np.maximum(entries["nctaid_x"], 1)
    ny = np.maximum(entries["nctaid_yz"] & np.uint32(0xFFFF), 1)
    rest = block // nx
    return block - rest * nx, rest % ny, rest // ny & np.uint32(0xFFFF)


def _cluster(x: U32s, y: U32s, z: U32s, shape: U32s) -> U32s:
    """HEADER["cluster"]: the block's place in its cluster, x fastest, and the shape; 0 without one."""
    sx, sy, sz = (np.maximum(shape >> np.uint32(shift) & np.uint32(0xFF), 1) for shift in (8, 16, 24))
    rank = x % sx + sx * (y % sy + sy * (z % sz))
    clustered = shape & np.uint32(0xFFFFFF00)
    return np.asarray(np.where(clustered != 0, rank & np.uint32(0xFF) | clustered, 0), np.uint32)


def _width(seal: U32s) -> U32s:
    """Most cycles between an anchor's clock reads; of an unfinished slab, the largest width that a seal can hold."""
    most = (1 << wire.WIDTH_BITS) - 1
    number = np.where(seal != 0, seal & np.uint32(most), np.uint32(most - 1))
    return np.asarray(np.where(number == most, np.uint32(_LONGEST_WIDTH), number * np.uint32(wire.WIDTH_CYCLES)))
