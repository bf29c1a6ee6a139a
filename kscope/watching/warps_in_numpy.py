"""Finds the warps of a pool in numpy; native/warps.c and drained.c do the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..capture import layout, wire
from ..capture.heads import Ints, U32s, Units, finished, valid
from ..capture.open_words import OpenWords, hashes, is_entered, open_words, torn
from ..capture.pools.pool_arrays import book, lines_of, units
from ..capture.pools.pool_reading import Pool, slabs
from ..util.arrays import Bools
from .warp_columns import BEHIND, FINISHED, IN, MOST_SEARCHED, NOWHERE, Warps

_ROWS = wire.RECORDS_PER_UNIT
_AGAIN = 8
"""Times that a word is read again if its halves come from two stores."""
_MOST_ANCHORS = 2
"""Most rows after the last record: an anchor, and the number of anchors."""
_NONE = np.uint32(0)


def warps(pool: Pool, roles: frozenset[int]) -> Warps:
    """Same as warps.warps()."""
    at, log2 = (np.asarray(one, np.int64) for one in slabs(pool))
    every = units(pool)
    heads = every[at]
    for _ in range(_AGAIN):
        again = np.flatnonzero(torn(open_words(heads)))
        if not len(again):
            break
        heads[again] = every[at[again]]
    entry = book(pool)[heads[:, 0] >> np.uint32(wire.SLOT_SHIFT)].copy()
    entry[~valid(heads, entry, pool.epoch)] = np.zeros((), wire.LAUNCH)
    words, who, done = open_words(heads), heads[:, 0], finished(heads)
    rows = _records(every, at, log2, heads, words, roles)
    region = np.where(is_entered(words), hashes(words), _NONE)
    is_in = (region != 0) & ~rows.left
    version = _versions(words, rows, done)
    kept = ~done | (rows.role != 0) | np.isin(entry["grid_id"], entry["grid_id"][~done])
    columns = (
        entry["grid_id"],
        entry["kernel"],
        entry["nctaid_x"],
        entry["nctaid_yz"],
        heads[:, 1] >> np.uint32(wire.BLOCK_SHIFT),
        who & np.uint32((1 << wire.EPOCH_SHIFT) - 1),
        heads[:, 1] >> np.uint32(wire.LANE_SHIFT) & np.uint32(31),
        who >> np.uint32(wire.SM_SHIFT) & np.uint32((1 << wire.SM_BITS) - 1),
        np.select([done, is_in, rows.last != 0], [FINISHED, IN, BEHIND], NOWHERE),
        torn(words).astype(np.uint8),
        np.where(is_in, region, rows.last),
        np.where(is_in, words["value"], rows.value),
        (~is_in & rows.more).astype(np.uint8),
        rows.role,
        words["sequence"] >> np.uint32(wire.SEQUENCE_SHIFT),
        version,
    )
    whole = int(np.bitwise_xor.reduce(version, initial=0))
    return Warps(len(at), whole, *(column[kept].tolist() for column in columns))


def drained_blocks(batch: memoryview, grid: int) -> list[int]:
    """Same as warps.drained_blocks()."""
    lines = lines_of(batch)
    at = np.flatnonzero(lines[:-1, 0] == layout.HEADER_WORD)
    pairs = np.stack([lines[at], lines[at + 1]], axis=1).reshape(-1, layout.HEADER_BYTES // 4)
    good = pairs[layout.header_check(pairs) == pairs[:, 15]]
    headers = np.ascontiguousarray(good).view(layout.HEADER)[:, 0]
    mine = headers[headers["grid_id"] == grid]
    yz, nyz = mine["ctaid_yz"].astype(np.int64), mine["nctaid_yz"].astype(np.int64)
    nx, x = mine["nctaid_x"].astype(np.int64), mine["ctaid_x"].astype(np.int64)
    found: list[int] = (x + nx * ((yz & 0xFFFF) + (nyz & 0xFFFF) * (yz >> 16))).tolist()
    return found


def _versions(words: OpenWords, rows: _Records, done: Bools) -> npt.NDArray[np.uint64]:
    word = words["sequence"].astype(np.uint64) << np.uint64(32) | words["clock"].astype(np.uint64)
    rest = rows.count.astype(np.uint64) << np.uint64(33) ^ rows.value.astype(np.uint64) << np.uint64(7)
    rest ^= rows.last.astype(np.uint64) ^ done.astype(np.uint64) << np.uint64(63)
    return np.asarray(word * np.uint64(0x9E3779B97F4A7C15) ^ rest)


@dataclass(frozen=True)
class _Records:
    """The last record and the role of each slab."""

    left: Bools
    last: U32s
    value: U32s
    more: Bools
    role: U32s
    count: Ints


def _records(every: Units, at: Ints, log2: Ints, heads: Units, words: OpenWords, roles: frozenset[int]) -> _Records:
    """The last record and the role of each slab. There may be millions of finished slabs: only the first have roles."""
    left, last, value, role = np.zeros(len(at), bool), *np.zeros((3, len(at)), np.uint32)
    more = np.zeros(len(at), bool)
    count = heads[:, 6].astype(np.int64)
    room, done = np.int64(1) << log2, finished(heads)
    first, rows = (at + wire.HEAD_UNITS) * _ROWS, every.reshape(-1, 4)
    some = np.flatnonzero(done & (count > 0))
    for back in range(_MOST_ANCHORS + 1, 0, -1):  # anchors may follow the newest record
        ends = rows[first[some] + (count[some] - back & room[some] - 1)]
        records = some[_is_record(ends) & (count[some] >= back)]
        ends = ends[_is_record(ends) & (count[some] >= back)]
        last[records], value[records], more[records] = ends[:, 1] >> np.uint32(4), ends[:, 3], _has_more(ends)
    which = np.append(np.flatnonzero(~done), some[:MOST_SEARCHED])
    if not len(which):
        return _Records(left, last, value, more, role, count)
    size = room[which]
    within = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
    each = rows[np.repeat(first[which], size) + within]
    begins, slab = np.cumsum(size) - size, np.repeat(np.arange(len(which)), size)
    there, number = _is_record(each), each[:, 1] >> np.uint32(4)
    named = np.where(there & np.isin(number, np.array(sorted(roles), np.uint32)), number, _NONE)
    role[which] = np.maximum.reduceat(named, begins)
    # a ring that has wrapped around: its newest record has the greatest end, relative to any of its records
    later = (each[:, 2] - each[begins[slab], 2]).view(np.int32).astype(np.int64) + (1 << 31)
    newest = np.maximum.reduceat(np.where(there, later << 21 | within + 1, 0), begins)
    found = rows[first[which] + np.maximum((newest & (1 << 21) - 1) - 1, 0)]
    mine = words[which]
    same = there & (each[:, 0] == mine["clock"][slab]) & (number == hashes(mine)[slab])
    open_, has = ~done[which], newest > 0
    left[which] = np.logical_or.reduceat(same, begins) & is_entered(mine)
    last[which[open_]] = np.where(has, found[:, 1] >> np.uint32(4), _NONE)[open_]
    more[which[open_]] = (has & _has_more(found))[open_]
    value[which[open_]] = np.where(has, found[:, 3], _NONE)[open_]
    count[which[open_]] = np.add.reduceat(there.astype(np.int64), begins)[open_]
    return _Records(left, last, value, more, role, count)


def _has_more(rows: npt.NDArray[np.uint32]) -> Bools:
    """True for records that have only half of their value."""
    return np.asarray(rows[:, 1] & np.uint32(layout.HAS_MORE) != 0)


def _is_record(rows: npt.NDArray[np.uint32]) -> Bools:
    """True for rows of rings that are records: neither cleared, nor anchors, nor halves of values."""
    kind = rows[:, 1] & np.uint32(15)
    return np.asarray((rows[:, 1] != 0) & (kind != layout.ANCHOR_ID) & (kind != layout.MORE))
