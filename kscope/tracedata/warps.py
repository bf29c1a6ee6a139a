"""The table of recording warps: one row per slab, with its place, its lifetime and its label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..util.arrays import Int64
from ..util.text_columns import TextColumn, constant, decimals, joined


@dataclass(frozen=True, eq=False)
class Warps:
    """Recording warps (with AllThreads, lanes); every array has shape (w,), and Trace.track indexes them.

    Attributes:
        device: index into Trace.devices.
        kernel: index into Trace.kernels.
        launch: index into Trace.launches.
        block: linear block index.
        block_xyz, grid, threads: (w, 3), block index, grid and block dimensions.
        warp, lane, sm: as in Trace.
        cluster: linear index of the block's cluster, -1 without clusters.
        cluster_rank: the block's rank in it, 0 without clusters.
        role: int16, index into Trace.role_names of the warp's role, -1 if it is unknown.
        start_ns, end_ns: float64, ns after Trace.origin; end_ns is NaN if the warp did not finish.
        finished: True if the warp finished.
        first_tick, last_tick: int64, the first and the last clock; for an unfinished warp the clock when the data
            was read, or, if that is unknown, the end of the last record.
        tick_ns: float64, mean ns per tick.
        curve: int32, index into Trace.curves of the warp's clock, which changed its rate; -1 if it did not.
        error_ns: float64, largest error of any time of the warp.
        ends_error_ns: float64, largest error of its start and its end.
        timer: ticks are ns of %globaltimer, not cycles.
        records: records in the trace.
        written: records written, including dropped ones.
        start_width, end_width: cycles that reading the anchors took; end_width is 0 without a finish.
    """

    device: Int64
    kernel: Int64
    launch: Int64
    block: Int64
    block_xyz: Int64
    grid: Int64
    threads: Int64
    warp: npt.NDArray[np.uint8]
    lane: npt.NDArray[np.uint8]
    sm: npt.NDArray[np.uint16]
    cluster: Int64
    cluster_rank: npt.NDArray[np.uint8]
    role: npt.NDArray[np.int16]
    start_ns: npt.NDArray[np.float64]
    end_ns: npt.NDArray[np.float64]
    finished: npt.NDArray[np.bool_]
    first_tick: Int64
    last_tick: Int64
    tick_ns: npt.NDArray[np.float64]
    curve: npt.NDArray[np.int32]
    error_ns: npt.NDArray[np.float64]
    ends_error_ns: npt.NDArray[np.float64]
    timer: npt.NDArray[np.bool_]
    records: Int64
    written: Int64
    start_width: Int64
    end_width: Int64

    def __len__(self) -> int:
        return len(self.device)

    @cached_property
    def noun(self) -> str:
        """The kind of a row: "warp"; "lane" if several lanes of one warp recorded (AllThreads)."""
        if not (self.lane > 0).any():
            return "warp"
        rows = np.stack([self.launch, self.block, self.warp.astype(np.int64)], axis=1)
        return "lane" if len(np.unique(rows, axis=0)) < len(rows) else "warp"

    @property
    def block_key(self) -> Int64:
        """(w,) a number for each row's block that is unique among all blocks of all launches."""
        return self.launch * (int(self.block.max(initial=0)) + 1) + self.block

    def label(self, row: int) -> str:
        """A row's label: ``block 3 warp 0``, with y, z if the grid has them, and the lane if lanes record."""
        return self.labels(np.array([row])).strings()[0]

    def labels(self, rows: Int64) -> TextColumn:
        """The labels of many rows."""
        parts = [constant(b"block ", len(rows)), self.blocks(rows), constant(b" warp ", len(rows))]
        parts.append(decimals(self.warp[rows]))
        if self.noun == "lane":
            parts += [constant(b" lane ", len(rows)), decimals(self.lane[rows])]
        return joined(*parts)

    def blocks(self, rows: Int64, digits: Sequence[int] = (1, 1, 1)) -> TextColumn:
        """Block indices of many rows: ``3``, ``3,1`` or ``3,1,0``. digits: least digits of each axis."""
        x, y, z = (self.block_xyz[rows, axis] for axis in range(3))
        deep = self.grid[rows, 2] != 1
        wide = deep | (self.grid[rows, 1] != 1)
        parts = [decimals(x, digits[0])]
        for index, needed, least in ((y, wide, digits[1]), (z, deep, digits[2])):
            if needed.any():
                parts.append(joined(constant(b",", len(rows)), decimals(index, least)).where(needed))
        return joined(*parts)


def last_ends(counts: Int64, start: Int64, took: Int64, first_tick: Int64) -> Int64:
    """(w,) ticks: the end of the last record of each row; first_tick if it has none.

    Args:
        counts: (w,) records of each row.
        start, took: ticks of the records, row after row in order of end; took is negative if unknown.
        first_tick: (w,).
    """
    last, some = np.array(first_tick), np.flatnonzero(counts)
    at = np.cumsum(counts)[some] - 1
    last[some] = np.maximum(start[at] + np.maximum(took[at], 0), last[some])
    return last
