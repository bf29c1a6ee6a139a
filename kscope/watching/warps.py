"""Every warp whose slab is in a pool: where it is, what it left last, whether it has finished, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..capture import layout, wire
from ..capture.heads import Ints, U32s, Units, finished, log2_of, valid
from ..capture.open_words import OpenWords, entered, hashes, open_words, torn
from ..capture.pools.pool_reading import Pool, slabs
from ..util.arrays import Bools

_ROWS = wire.RECORDS_PER_UNIT
_AGAIN = 8
"""Times that a word is read again if its halves come from two stores."""
_MOST_ROLES = 4096
"""Finished slabs whose records are searched for roles."""
_MOST_ANCHORS = 2
"""Rows behind the last record: an anchor, and the number of anchors."""
_NONE = np.uint32(0)


@dataclass(frozen=True)
class Warps:
    """One row per slab: a recording lane, mostly lane 0 of a warp.

    Attributes:
        launch: (n,) wire.LAUNCH, of the lane's launch; all 0 if it is unknown.
        block, warp, lane, sm: (n,) its place; block is the linear number.
        finished: (n,) it has left the kernel.
        word: (n,) wire.OPEN, the region that it entered last; all 0 where none is stored.
        torn: (n,) the word changed whenever it was read.
        left: (n,) the region of the word has ended.
        last: (n,) hash of the region of its newest record; 0 without one.
        last_value: (n,) of that record.
        last_more: (n,) whether that value has more than 32 bits.
        role: (n,) hash of the name of its role, if it has recorded one; else 0.
        records: (n,) number of records written, as far as the ring shows.
    """

    launch: np.ndarray
    block: Ints
    warp: Ints
    lane: Ints
    sm: Ints
    finished: Bools
    word: OpenWords
    torn: Bools
    left: Bools
    last: U32s
    last_value: U32s
    last_more: Bools
    role: U32s
    records: Ints

    def __len__(self) -> int:
        return len(self.block)

    @property
    def region(self) -> U32s:
        """(n,) hash of the region that the word names; 0 without one."""
        return np.where(entered(self.word), hashes(self.word), _NONE).astype(np.uint32)


def warps(pool: Pool, roles: frozenset[int] = frozenset()) -> Warps:
    """The warps in a pool, while it may be written.

    Args:
        pool: the pool file.
        roles: hashes of the names by which warps record their role.
    """
    at = slabs(pool)
    heads = pool.units[at]
    for _ in range(_AGAIN):
        again = np.flatnonzero(torn(open_words(heads)))
        if not len(again):
            break
        heads[again] = pool.units[at[again]]
    entry = pool.book[heads[:, 0] >> np.uint32(wire.SLOT_SHIFT)].copy()
    known = valid(heads, entry, pool.epoch)
    entry[~known] = np.zeros((), wire.LAUNCH)
    words, who = open_words(heads), heads[:, 0]
    rows = _records(pool.units, at, heads, words, roles)
    return Warps(
        launch=entry,
        block=(heads[:, 1] >> np.uint32(wire.BLOCK_SHIFT)).astype(np.int64),
        warp=(who & np.uint32((1 << wire.EPOCH_SHIFT) - 1)).astype(np.int64),
        lane=(heads[:, 1] >> np.uint32(wire.LANE_SHIFT) & np.uint32(31)).astype(np.int64),
        sm=(who >> np.uint32(wire.SM_SHIFT) & np.uint32((1 << wire.SM_BITS) - 1)).astype(np.int64),
        finished=finished(heads),
        word=words,
        torn=torn(words),
        left=rows.left,
        last=rows.last,
        last_value=rows.value,
        last_more=rows.more,
        role=rows.role,
        records=rows.count,
    )


@dataclass(frozen=True)
class _Records:
    """The last record and the role of each slab."""

    left: Bools
    last: U32s
    value: U32s
    more: Bools
    role: U32s
    count: Ints


def _records(units: Units, at: Ints, heads: Units, words: OpenWords, roles: frozenset[int]) -> _Records:
    """Of finished slabs, the newest record alone; there may be millions of them, of which the first ones have roles."""
    left, last, value, role = np.zeros(len(at), bool), *np.zeros((3, len(at)), np.uint32)
    more = np.zeros(len(at), bool)
    count = heads[:, 6].astype(np.int64)
    room, done = np.int64(1) << log2_of(heads), finished(heads)
    first, rows = (at + wire.HEAD_UNITS) * _ROWS, units.reshape(-1, 4)
    some = np.flatnonzero(done & (count > 0))
    for back in range(_MOST_ANCHORS + 1, 0, -1):  # anchors may follow the newest record
        ends = rows[first[some] + (count[some] - back & room[some] - 1)]
        records = some[_is_record(ends) & (count[some] >= back)]
        ends = ends[_is_record(ends) & (count[some] >= back)]
        last[records], value[records], more[records] = ends[:, 1] >> np.uint32(4), ends[:, 3], _has_more(ends)
    which = np.append(np.flatnonzero(~done), some[:_MOST_ROLES])
    if not len(which):
        return _Records(left, last, value, more, role, count)
    size = room[which]
    within = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
    each = rows[np.repeat(first[which], size) + within]
    begins, slab = np.cumsum(size) - size, np.repeat(np.arange(len(which)), size)
    there, number = _is_record(each), each[:, 1] >> np.uint32(4)
    named = np.where(there & np.isin(number, np.array(sorted(roles), np.uint32)), number, _NONE)
    role[which] = np.maximum.reduceat(named, begins)
    # a ring that has turned: its newest record has the greatest end, as seen from any of its records
    later = (each[:, 2] - each[begins[slab], 2]).view(np.int32).astype(np.int64) + (1 << 31)
    newest = np.maximum.reduceat(np.where(there, later << 21 | within + 1, 0), begins)
    found = rows[first[which] + np.maximum((newest & (1 << 21) - 1) - 1, 0)]
    mine = words[which]
    same = there & (each[:, 0] == mine["clock"][slab]) & (number == hashes(mine)[slab])
    open_, has = ~done[which], newest > 0
    left[which] = np.logical_or.reduceat(same, begins) & entered(mine)
    last[which[open_]] = np.where(has, found[:, 1] >> np.uint32(4), _NONE)[open_]
    more[which[open_]] = (has & _has_more(found))[open_]
    value[which[open_]] = np.where(has, found[:, 3], _NONE)[open_]
    count[which[open_]] = np.add.reduceat(there.astype(np.int64), begins)[open_]
    return _Records(left, last, value, more, role, count)


def _has_more(rows: npt.NDArray[np.uint32]) -> Bools:
    """Which records have only half of their value."""
    return np.asarray(rows[:, 1] & np.uint32(layout.HAS_MORE) != 0)


def _is_record(rows: npt.NDArray[np.uint32]) -> Bools:
    """Which rows of rings are records: neither cleared, nor anchors, nor halves of values."""
    kind = rows[:, 1] & np.uint32(15)
    return np.asarray((rows[:, 1] != 0) & (kind != layout.ANCHOR_ID) & (kind != layout.MORE))


def states(found: Warps) -> npt.NDArray[np.uint64]:
    """(n,) a number per warp that changes when the warp enters, leaves or records something."""
    word = found.word["sequence"].astype(np.uint64) << np.uint64(32) | found.word["clock"].astype(np.uint64)
    rest = found.records.astype(np.uint64) << np.uint64(33) ^ found.last_value.astype(np.uint64) << np.uint64(7)
    rest ^= found.last.astype(np.uint64) ^ found.finished.astype(np.uint64) << np.uint64(63)
    return np.asarray(word * np.uint64(0x9E3779B97F4A7C15) ^ rest)


def keys(found: Warps) -> npt.NDArray[np.void]:
    """(n,) what identifies each warp's slab: launch, block, warp, lane."""
    made = np.zeros(len(found), [("grid", "<u8"), ("block", "<i8"), ("lane", "<i8")])
    made["grid"], made["block"] = found.launch["grid_id"], found.block
    made["lane"] = found.warp * 32 + found.lane
    return np.asarray(made)
