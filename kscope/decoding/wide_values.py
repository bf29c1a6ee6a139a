"""Values of 64 bits: a record has one half, and the row before it may have the other one (capture/layout.py, MORE). A
record's kind shows if it has such a row, so the value is unknown where a ring has overwritten that row, or the row is
damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..capture.layout import MORE, Kind
from ..capture.model import Problem
from ..marks.wide_values import LEAST_WIDE, join_halves
from ..tracedata.data import TraceData
from ..util.arrays import Int64
from ..util.text import counted

Words = npt.NDArray[np.uint32]
_POINTS = {Kind.SPAN_VALUE: Kind.SPAN}
"""The kind of a record whose value is unknown; of others, an instant without one."""


@dataclass(frozen=True)
class Halves:
    """Rows with halves, of records (n,) that have one.

    Attributes:
        record: int64, indices of the records, ascending.
        word: uint32, the other half.
        known: bool, True if the row is there.
    """

    record: Int64
    word: Words
    known: npt.NDArray[np.bool_]

    @staticmethod
    def none() -> Halves:
        """No halves."""
        return Halves(np.zeros(0, np.int64), np.zeros(0, np.uint32), np.zeros(0, bool))

    @staticmethod
    def joined(parts: list[tuple[Halves, int]]) -> Halves:
        """The halves of several devices, each with its number of records."""
        before = np.cumsum([0, *(count for _, count in parts)]).tolist()
        found = [(one.record + at, one.word, one.known) for (one, _), at in zip(parts, before, strict=False)]
        columns = zip(*found, strict=True) if found else ()
        return Halves(*(np.concatenate(column) for column in columns)) if found else Halves.none()

    def without(self, gone: Int64) -> Halves:
        """The halves with the numbers of records after those at the indices `gone`, ascending, are removed."""
        return replace(self, record=self.record - np.searchsorted(gone, self.record))


def found_in(
    region: npt.NDArray[np.uint16], twins: npt.NDArray[np.uint16], rows: Callable[[Int64], Words], offsets: Int64
) -> Halves:
    """The halves among one device's records; their regions become those of records without halves.

    Args:
        region: (r,) of all records.
        twins: IdTable.twins().
        rows: the words of records.
        offsets: (s,) the first record of each slab.
    """
    twin = twins[region]
    record = np.flatnonzero(twin)
    region[record] = twin[record]
    before = np.maximum(record - 1, 0)
    one, other = rows(record), rows(before)
    known = (record > 0) & (other[:, [0, 2]] == one[:, [0, 2]]).all(axis=1)
    known &= other[:, 1] == (one[:, 1] & ~np.uint32(15) | np.uint32(MORE))
    known &= ~np.isin(record, offsets)  # else it is another warp's
    return Halves(record, np.where(known, other[:, 3], np.uint32(0)), known)


def with_values(trace: TraceData, halves: Halves) -> TraceData:
    """The trace with values of 64 bits in `bits`; a record whose value is unknown has none."""
    wide = trace.types >= LEAST_WIDE
    if not wide.any() and not len(halves.record):
        return trace
    code = trace.types[trace.warps.kernel[trace.track], trace.region] if len(trace) else np.zeros(0, np.uint8)
    more = np.zeros(len(trace), np.uint32)
    more[halves.record] = halves.word
    lost = halves.record[~halves.known | (code[halves.record] < LEAST_WIDE)]
    whole = replace(trace, bits=join_halves(code, trace.bits.astype(np.uint32), more))
    return _without_values(whole, lost) if len(lost) else whole


def _without_values(trace: TraceData, lost: Int64) -> TraceData:
    regions, types, region = list(trace.regions), [trace.types], trace.region.copy()
    for one in np.unique(region[lost]).tolist():
        old = regions[one]
        region[lost[trace.region[lost] == one]] = len(regions)
        regions.append(replace(old, kind=_POINTS.get(old.kind, Kind.INSTANT)))
        types.append(trace.types[:, one : one + 1])
    bits = trace.bits.copy()
    bits[lost] = 0
    text = f"{counted(len(lost), 'record')} lost half of a 64-bit value to a newer record: without it"
    return replace(
        trace, region=region, regions=tuple(regions), types=np.concatenate(types, axis=1), bits=bits,
        problems=(*trace.problems, Problem("half", text, len(lost))),
    )  # fmt: skip
