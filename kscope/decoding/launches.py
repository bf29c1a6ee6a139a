"""Finds the launch of each slab, by (device, %gridid, replay), and whether the launch was recorded as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from ..capture.layout import LOG2_SHIFT
from ..util.arrays import Int64
from ..util.parallel import each, filled, least, shares
from ..util.runs import fresh, group_equal, heads, inverse, most_of, order_by, starts
from .slabs import Slabs

_LANE = (1 << LOG2_SHIFT) - 1
"""Warp and lane in HEADER["place"]."""
_TABLE = 64
"""Bytes of a table per key up to which it is faster than a sort."""


@dataclass(frozen=True)
class Launches:
    """One row per launch, in order of first start.

    Attributes:
        of: (s,) int64, each slab's row.
        device, kernel, grid_id, replay: (l,); kernel is the 64-bit id.
        family: (l,) int64, the same number for all replays of a grid id, from 0.
        grid: (l, 3), blocks of the grid.
        start: (l,) earliest start of a warp, ns on an axis that the devices share.
        missing_blocks: (l,) blocks of the grid without a slab.
        uneven: (l,) bool, a replay with fewer slabs than another of its grid.
        in_turn: (s,) bool, the slab is of a warp whose lanes record in turn.
    """

    of: Int64
    device: Int64
    kernel: npt.NDArray[np.uint64]
    grid_id: npt.NDArray[np.uint64]
    replay: Int64
    family: Int64
    grid: Int64
    start: Int64
    missing_blocks: Int64
    uneven: npt.NDArray[np.bool_]
    in_turn: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.start)


def number(slabs: Slabs, device: Int64, offset: Int64) -> Launches:
    """Number the launches of slabs (s,).

    The replays of a captured graph share one %gridid. Replays of one grid do not overlap. So if the warps of a grid
    form as many separate intervals of time as some lane claimed slabs, an interval is a replay; else the n-th claim of
    a lane is replay n. A lane that claims late, and only in some replays, goes with lane 0.

    Args:
        slabs: the slabs of all devices.
        device: (s,) index of the device.
        offset: (devices,) ns from a device's %globaltimer to the shared axis.
    """
    header = slabs.header
    _, _, kernel = slabs.kernels
    first, size, grid = group_equal(header["grid_id"])
    kernels, grids = int(kernel.max(initial=0)) + 1, len(size)
    if kernels > 1 or len(offset) > 1:
        first, size, grid = group_equal((device * kernels + kernel) * grids + grid)
    block = slabs.linear_block
    in_turn = _in_turn(slabs, grid, block)
    replay = _replays(slabs, grid, block, in_turn)
    turns, launch = int(replay.max(initial=0)) + 1, grid
    if turns > 1:
        first, size, launch = group_equal(grid * turns + replay)
    if in_turn.any():  # which lanes besides 0 record depends on the data
        size = np.bincount(launch, ~in_turn | (slabs.lane == 0), len(first)).astype(np.int64)
    time = filled(len(slabs), np.int64, lambda part: header["start_time"][part].astype(np.int64) + offset[device[part]])
    start = least(len(first), launch, time)
    order = np.argsort(start, kind="stable")
    rank = inverse(order)
    largest = most_of(grid[first], size, len(size), 0)
    uneven = size < largest[grid[first]]
    shape = slabs.grid[first]
    blocks = shape[:, 0] * shape[:, 1] * shape[:, 2]
    seen = _distinct_per_group(launch, block, len(first))
    first = first[order]
    in_order = bool((rank[1:] > rank[:-1]).all())
    return Launches(
        of=launch if in_order else filled(len(slabs), np.int64, lambda part: rank[launch[part]]),
        device=device[first],
        kernel=header["kernel"][first],
        grid_id=header["grid_id"][first],
        replay=replay[first],
        family=grid[first],
        grid=shape[order],
        start=start[order],
        missing_blocks=np.clip(blocks - seen, 0, 1 << 40)[order],
        uneven=uneven[order],
        in_turn=in_turn,
    )


def _in_turn(slabs: Slabs, grid: Int64, block: Int64) -> npt.NDArray[np.bool_]:
    """Slabs of warps with lanes that record in turn, except for those of lanes that all record."""
    if not slabs.in_turn.any():
        return slabs.in_turn
    key = np.stack([grid, block, slabs.warp.astype(np.int64)], axis=1)
    _, group = np.unique(key, axis=0, return_inverse=True)
    some = np.bincount(group.ravel(), slabs.in_turn) > 0
    return np.asarray(some[group.ravel()] & ~slabs.every)


def _replays(slabs: Slabs, grid: Int64, block: Int64, in_turn: npt.NDArray[np.bool_]) -> Int64:
    """Replay number of each slab within its grid."""
    place = slabs.header["place"]
    lane = filled(len(slabs), np.uint16, lambda part: place[part] & _LANE)
    key = _joined(grid, block, lane)
    if key is not None and _all_different(key):
        return np.broadcast_to(np.int64(0), len(grid))
    time = slabs.header["start_time"].astype(np.int64)
    order = order_by(grid, block, lane, time)
    first, replay = fresh(grid[order], block[order], lane[order]), np.zeros(len(grid), np.int64)
    if first.all():
        return replay
    replay[order] = np.arange(len(order)) - starts(first)
    found, sure = _by_intervals(slabs, grid, time, replay)
    late = in_turn & (slabs.lane != 0) & ~sure
    return (
        _with_lane_0(slabs, found, late, np.stack([grid, block, slabs.warp.astype(np.int64)])) if late.any() else found
    )


def _with_lane_0(slabs: Slabs, replay: Int64, late: npt.NDArray[np.bool_], warp: Int64) -> Int64:
    """Give the `late` lanes of warps that record in turn the replay of lane 0 that began with them."""
    time = slabs.header["start_time"].astype(np.int64)
    order = order_by(*warp, time, slabs.lane)
    lead = np.where(slabs.lane[order] == 0, np.arange(len(order)), 0)
    found: Int64 = np.array(replay, np.int64)
    found[order] = np.where(late[order], replay[order][np.maximum.accumulate(lead)], replay[order])
    return found


def _by_intervals(slabs: Slabs, grid: Int64, time: Int64, replay: Int64) -> tuple[Int64, npt.NDArray[np.bool_]]:
    """(replays, whether they are certain), by separate intervals of time for grids where their number equals the
    claims'.
    """
    sure = np.zeros(len(grid), bool)
    found = intervals(slabs, grid)
    if found is None:
        return replay, sure
    order, interval = found
    grids = grid[order]
    count = int(grid.max()) + 1
    agree = (most_of(grid, replay, count, 0) == most_of(grids, interval, count, 0))[grids]
    result: Int64 = np.array(replay, np.int64)
    result[order[agree]] = interval[agree]
    sure[order[agree]] = True
    return result, sure


def intervals(slabs: Slabs, grid: Int64) -> tuple[Int64, Int64] | None:
    """Separate intervals of time of each grid's slabs; None if the times are damaged.

    Args:
        slabs: at least one.
        grid: (s,) number of each slab's grid, from 0.

    Returns:
        The order of the slabs by grid and start, and the number of the interval of each slab in that order, from 0.
    """
    time = slabs.header["start_time"].astype(np.int64)
    end = np.where(slabs.finished, slabs.header["end_time"].astype(np.int64), time)
    order = order_by(grid, time)
    grids = grid[order]
    # a running maximum per grid: each grid's times are above those of earlier grids
    origin, width = int(time.min()), int(max(end.max(), time.max()) - time.min()) + 1
    if not 0 < width * (int(grid.max()) + 1) < 1 << 62:
        return None
    lift = grids * width - origin
    reach = np.maximum.accumulate(end[order] + lift)
    count = np.cumsum(np.concatenate([[True], (time[order] + lift)[1:] > reach[:-1]]))
    return order, count - np.maximum.accumulate(np.where(fresh(grids), count, 0))


def _all_different(key: Int64) -> bool:
    """True if no number from 0 on is there twice."""
    if (table := _table(key, _values(key))) is not None:
        return bool(np.count_nonzero(table) == len(key))
    return not (np.diff(np.sort(key)) == 0).any()


def _table(key: Int64, size: int) -> npt.NDArray[np.bool_] | None:
    """Which numbers below `size` there are; None if a sort is faster."""
    if size > _TABLE * len(key):
        return None
    table = np.zeros(size, bool)

    def fill(part: slice) -> None:
        table[key[part]] = True

    each(fill, shares(len(key)))
    return table


def _distinct_per_group(group: Int64, member: Int64, count: int) -> Int64:
    key = _joined(group, member)
    if key is not None and (table := _table(key, count * _values(member))) is not None:
        return np.asarray(table.reshape(count, _values(member)).sum(axis=1), np.int64)
    if key is not None:
        key.sort()
        return np.asarray(np.bincount(key[heads(key)] // _values(member), minlength=count), np.int64)
    order = np.lexsort((member, group))
    new = order[heads(group[order], member[order])]
    return np.asarray(np.bincount(group[new], minlength=count), np.int64)


def _joined(*columns: npt.NDArray[np.integer]) -> Int64 | None:
    """Several columns as one with the same order, which sorts several times faster; None if it does not fit, or a
    number is negative.
    """
    values = [_values(column) for column in columns]
    if prod(values) > 1 << 62 or any(column.min(initial=0) < 0 for column in columns):
        return None

    def join(part: slice) -> Int64:
        joined: Int64 = columns[0][part].astype(np.int64, copy=False)
        for column, many in zip(columns[1:], values[1:], strict=True):
            joined = joined * many + column[part]
        return joined

    return filled(len(columns[0]), np.int64, join)


def _values(column: npt.NDArray[np.integer]) -> int:
    """Number of values that a column of numbers from 0 may have."""
    return int(column.max(initial=0)) + 1
