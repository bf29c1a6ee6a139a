"""Edges from the last operation of a phase to the waits that it ends; and phases as records, for timelines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...capture.layout import Kind
from ...tracedata.data import T, TraceData
from ...tracedata.region import Region
from ...util.arrays import Float, Int64
from ...util.runs import inverse
from .committed import label
from .events import has_records
from .phases import NO_PHASE, Phases, phases

_UNSIGNED = 1
"""A type of values, as in TraceData.types."""
EXACT, AT_MOST = "in flight", "in flight at most"
"""Names of phases with an exact completion, and with an upper bound for it."""


@dataclass(frozen=True, eq=False)
class BarrierEdges:
    """Edges from a signal to a wait, of records of the whole trace; arrays have shape (e,).

    Attributes:
        wait, signal: indices of records.
        issued_ns: when the signal was made.
        unknown: number of waits whose phase is unknown.
    """

    wait: Int64
    signal: Int64
    issued_ns: Float
    unknown: int


def barrier_edges(trace: TraceData, found: Phases | None = None) -> BarrierEdges:
    """The edges of a trace's barriers.

    Args:
        trace: the trace; of a filtered one the whole is read.
        found: its phases, if already computed.
    """
    found = phases(trace) if found is None else found
    last = last_signals(trace.whole, found)
    mine = np.flatnonzero(found.wait_phase != NO_PHASE)
    phase = found.wait_phase[mine]
    unknown = int(np.count_nonzero(~found.wait_known))
    return BarrierEdges(found.wait_record[mine], last[phase], found.issued_ns[phase], unknown)


def last_signals(trace: TraceData, found: Phases) -> Int64:
    """(p,) the record of each phase's last operation."""
    mine = np.flatnonzero(found.signal_phase != NO_PHASE)
    order = mine[np.argsort(trace.start_ns[found.signal_record[mine]], kind="stable")]
    last = np.zeros(len(found), np.int64)
    last[found.signal_phase[order]] = found.signal_record[order]  # the last of several stays
    return last


@dataclass(frozen=True, eq=False)
class Drawn:
    """A trace with phases as records. source, target: (f,) arrows between records, to the targets' ends."""

    source: Int64
    target: Int64


def with_phases(trace: T) -> tuple[T, Drawn]:
    """The trace with each phase as a span on a track of its barrier, in the row of its block's first warp.

    A span begins with the first operation of a phase. Its name distinguishes an exact end from an upper bound. Filtered
    traces, and those without records of auto="pipeline", are not changed.
    """
    nothing = Drawn(np.zeros(0, np.int64), np.zeros(0, np.int64))
    if trace.filtered or not has_records(trace):
        return trace, nothing
    found = phases(trace)
    ended = np.isfinite(found.landed_ns)
    number, regions = _regions(trace, found)
    end = np.where(ended, found.landed_ns, np.maximum(found.issued_ns, found.first_ns))
    warps = trace.warps
    start_ticks, end_ticks = (trace.ticks_of(found.row, ns) for ns in (found.first_ns, end))
    track = np.concatenate([trace.track, found.row.astype(np.int32)])
    ends = np.concatenate([trace.start_ticks + np.maximum(trace.dur_cycles, 0), end_ticks])
    own = np.arange(len(trace))
    # records of a warp keep their order, and a phase comes after those that ended before it
    place = np.concatenate([own, _places(trace, found.row, end_ticks)])
    order = np.lexsort((ends, track, np.arange(len(track)) >= len(trace), place))
    at = inverse(order)
    columns: dict[str, Any] = {
        "region": np.concatenate([trace.region, number.astype(np.uint16)])[order],
        "track": track[order],
        "start_ticks": np.concatenate([trace.start_ticks, start_ticks])[order],
        "dur_cycles": np.concatenate([trace.dur_cycles, np.maximum(end_ticks - start_ticks, 0)])[order],
        "bits": np.concatenate([trace.bits, found.number.astype(np.uint32)])[order],
    }
    more = np.bincount(found.row, minlength=len(warps))
    made = replace(
        trace, **columns, warps=replace(warps, records=warps.records + more, written=warps.written + more),
        regions=(*trace.regions, *regions),
        types=np.pad(trace.types, ((0, 0), (0, len(regions))), constant_values=_UNSIGNED),
    )  # fmt: skip
    edges = barrier_edges(trace, found)
    phase_at = at[len(trace) :]
    waits = np.flatnonzero(found.wait_phase != NO_PHASE)
    source = np.concatenate([at[last_signals(trace, found)], phase_at[found.wait_phase[waits]]])
    target = np.concatenate([phase_at, at[edges.wait]])
    return made, Drawn(source, target)


def _places(trace: TraceData, row: Int64, end: Int64) -> Int64:
    """For each phase the index of the record of its row that precedes it; -1 for the first row's begin."""
    ends = trace.start_ticks + np.maximum(trace.dur_cycles, 0)
    first, last = np.searchsorted(trace.track, [row, row + 1])
    place = np.empty(len(row), np.int64)
    for number, (one, low, high) in enumerate(zip(end.tolist(), first.tolist(), last.tolist(), strict=True)):
        place[number] = low + int(np.searchsorted(ends[low:high], one, side="right")) - 1
    return place


def _regions(trace: TraceData, found: Phases) -> tuple[Int64, list[Region]]:
    """(the region of each phase, the regions)."""
    keys, of = np.unique(np.stack([found.barrier, found.exact], axis=1), axis=0, return_inverse=True)
    regions = [
        Region(EXACT if exact else AT_MOST, Kind.SPAN_VALUE, track=label(barrier), flight=True)
        for barrier, exact in keys.tolist()
    ]
    return len(trace.regions) + of.ravel(), regions
