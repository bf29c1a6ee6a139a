"""Operations on barriers recorded with auto="pipeline": one row each, on one clock per block. A block's warps read one
clock, so the order of their operations is exact; an arrival from another block of the cluster is moved to the clock of
the barrier's block, and may be off by the errors of both warps.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ...capture.layout import Kind
from ...marks import operations
from ...marks.operations import Named
from ...tracedata.data import TraceData
from ...util.arrays import Int64
from ...util.runs import group_equal

UNKNOWN = -1
_OPERATIONS = ("init", "wait", "arrive", "expect", "expect_tx", "copy", "follow")
INIT, WAIT, ARRIVE, EXPECT, EXPECT_TX, COPY, FOLLOW = range(len(_OPERATIONS))
"""Numbers of operations on a barrier, in Events.operation."""


@dataclass(frozen=True, eq=False)
class Events:
    """Operations on barriers; every array has shape (n,).

    Attributes:
        record: index into the records of the trace.
        operation: INIT to FOLLOW.
        home: number of the block whose shared memory has the barrier.
        barrier: offset in that memory.
        start, end: ticks of the clock of `home`; equal except for waits.
        parity: parity that a wait waits for.
        weight: number of arrivals that it makes, or that a phase needs (INIT).
        bytes: expected bytes; 0 for other operations.
        copies: number of copies that it is or includes.
        copied: their bytes; UNKNOWN if their sizes are not known.
        multicast: True if it goes to several blocks.
        slack: ticks by which start and end may be wrong, because another block executed it.
    """

    record: Int64
    operation: Int64
    home: Int64
    barrier: Int64
    start: Int64
    end: Int64
    parity: Int64
    weight: Int64
    bytes: Int64
    copies: Int64
    copied: Int64
    multicast: npt.NDArray[np.bool_]
    slack: Int64

    def __len__(self) -> int:
        return len(self.record)

    def take(self, index: npt.NDArray[np.generic]) -> Events:
        """The rows at these indices."""
        return Events(*(getattr(self, one.name)[index] for one in fields(self)))


@dataclass(frozen=True, eq=False)
class Homes:
    """Blocks of launches. row: (b,) a row of Trace.warps of each. of: (w,) the block of every row."""

    row: Int64
    of: Int64

    @staticmethod
    def among(trace: TraceData) -> Homes:
        """All blocks of a trace."""
        first, _, of = group_equal(trace.warps.block_key)
        return Homes(first, of)

    def ns(self, trace: TraceData, home: Int64, ticks: Int64) -> npt.NDArray[np.float64]:
        """ns after the trace's origin of ticks of blocks' clocks."""
        return trace.ns_of(self.row[home], ticks)


def names(trace: TraceData) -> list[Named | None]:
    """The operation in each region's name; None for regions of other kinds."""
    found = (operations.of_name(one.name) if one.known else None for one in trace.regions)
    values = (Kind.SPAN_VALUE, Kind.INSTANT_VALUE)
    return [name if one.kind in values else None for name, one in zip(found, trace.regions, strict=True)]


def has_records(trace: TraceData) -> bool:
    """True if a trace has records of auto="pipeline"."""
    return any(one is not None for one in names(trace))


def events(trace: TraceData, homes: Homes) -> tuple[Events, int]:
    """The operations on barriers of a whole trace, in the order of its records.

    Returns:
        The operations, and the number of those on barriers of blocks that did not record.
    """
    known = names(trace)
    number = np.array([-1 if one is None else _number(one) for one in known], np.int64)
    record = np.flatnonzero(number[trace.region] >= 0)
    region = trace.region[record].astype(np.int64)
    operation = number[region]
    bits = trace.bits[record].astype(np.int64)
    lanes = np.where(operation == WAIT, 1, (bits >> operations.LANES_SHIFT & 31) + 1)
    count = np.array([1 if one is None else one.count for one in known], np.int64)[region]
    size = np.array([UNKNOWN if one is None or one.bytes is None else one.bytes for one in known], np.int64)[region]
    size = np.where(size >= 0, size, _following(trace, known, record))
    weight = np.where(np.isin(operation, (ARRIVE, EXPECT, FOLLOW)), count * lanes, 0)
    weight = np.where((operation == ARRIVE) & (size >= 0), size * lanes, weight)
    weight = np.where(operation == INIT, np.where(size >= 0, size, count), weight)
    copies = np.array([0 if one is None else one.copies for one in known], np.int64)[region]
    copies = np.where(operation == COPY, np.maximum(copies, 1), copies) * lanes
    copied = np.array([UNKNOWN if one is None or one.copied is None else one.copied for one in known], np.int64)[region]
    copied = np.where(operation == COPY, size, copied)
    copied = np.where(copied >= 0, copied * lanes, UNKNOWN)
    size = np.where(np.isin(operation, (EXPECT, EXPECT_TX)), np.maximum(size, 0) * lanes, 0)
    start = trace.start_ticks[record].astype(np.int64)
    end = start + np.maximum(trace.dur_cycles[record], 0)
    own = homes.of[trace.track[record]]
    home, found = _targets(trace, homes, own, bits >> operations.BLOCK_SHIFT & 0xFF)
    multicast = np.array([one is not None and one.multicast for one in known])[region]
    barrier, parity = bits & operations.ADDRESS_MASK, bits >> operations.PARITY_SHIFT & 1
    slack = np.zeros(len(record), np.int64)
    made = Events(
        record, operation, home, barrier, start, end, parity, weight, size, copies, copied, multicast, slack
    )  # fmt: skip
    return _moved(trace, homes, made, own).take(np.flatnonzero(found)), int(np.count_nonzero(~found))


def _number(one: Named) -> int:
    return _OPERATIONS.index(one.operation) if one.operation in _OPERATIONS else UNKNOWN


def _following(trace: TraceData, known: list[Named | None], record: Int64) -> Int64:
    """(n,) the number of bytes in the next record of the same lane; UNKNOWN if that is another record."""
    has = np.array([one is not None and one.operation == "bytes" for one in known])
    after = np.minimum(record + 1, len(trace) - 1)
    fits = has[trace.region[after]] & (trace.track[after] == trace.track[record]) & (after > record)
    return np.where(fits, trace.bits[after].astype(np.int64), UNKNOWN)


def _targets(trace: TraceData, homes: Homes, own: Int64, rank: Int64) -> tuple[Int64, npt.NDArray[np.bool_]]:
    """(the barrier's block, True if it recorded)."""
    warps = trace.warps
    mine = homes.row[own]
    other = (warps.cluster[mine] >= 0) & (rank != warps.cluster_rank[mine])
    home, found = own.copy(), np.ones(len(own), bool)
    if not other.any():
        return home, found
    width = int(warps.cluster.max()) + 1
    by_place = {
        (int(warps.launch[row]) * width + int(warps.cluster[row])) << 8 | int(warps.cluster_rank[row]): number
        for number, row in enumerate(homes.row.tolist())
    }
    at = np.flatnonzero(other)
    keys = (warps.launch[mine[at]] * width + warps.cluster[mine[at]]) << 8 | rank[at]
    place = np.array([by_place.get(key, UNKNOWN) for key in keys.tolist()], np.int64)
    home[at], found[at] = np.maximum(place, 0), place >= 0
    return home, found


def _moved(trace: TraceData, homes: Homes, made: Events, own: Int64) -> Events:
    """Operations of other blocks on the clock of the barrier's block."""
    at = np.flatnonzero(made.home != own)
    if not len(at):
        return made
    warps = trace.warps
    mine, there = trace.track[made.record[at]], homes.row[made.home[at]]
    for column in (made.start, made.end):
        column[at] = trace.ticks_of(there, trace.ns_of(mine, column[at]))
    error = (warps.error_ns[mine] + warps.error_ns[there]) / warps.tick_ns[there]
    made.slack[at] = np.ceil(np.nan_to_num(error, posinf=float(1 << 40))).astype(np.int64)
    return made
