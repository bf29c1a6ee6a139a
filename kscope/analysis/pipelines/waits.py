"""Waits for barriers by role: their causes, and the operations that ended them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...tracedata.data import TraceData
from ...tracedata.kernel_names import kernel_names
from ...util.runs import group_equal
from ..roles import Named, roles
from .edges import last_signals
from .events import has_records
from .phases import NO_PHASE, phases
from .stages import split_waits


@dataclass(frozen=True)
class BarrierWait:
    """Waits of a role at one place for barriers, recorded with auto="pipeline".

    Attributes:
        kernel, role, region: names.
        warp_time_ns: of all its warps.
        not_issued, in_flight, landed: parts of that time: before the last operation of the phase was issued, before it
            had landed, and after.
        signals: (role, region, share) of the last operations, which ended the waits, largest share of the time first.
    """

    kernel: str
    role: str
    region: str
    warp_time_ns: float
    not_issued: float
    in_flight: float
    landed: float
    signals: tuple[tuple[str, str, float], ...]


def barrier_waits(trace: TraceData, named: Named | None = None) -> tuple[BarrierWait, ...]:
    """The waits of a trace for barriers, longest first; none without records of auto="pipeline".

    Args:
        trace: the trace.
        named: warp numbers by role name; inferred without.
    """
    if not has_records(trace):
        return ()
    whole, known = trace.whole, roles(trace.whole, named)
    found = phases(whole)
    mine = np.flatnonzero(np.isin(found.wait_record, trace.kept))
    record, phase = found.wait_record[mine], found.wait_phase[mine]
    if not len(mine):
        return ()
    parts = split_waits(whole, found, mine)
    ns = np.nan_to_num(whole.dur_ns[record])
    last = np.append(last_signals(whole, found), -1)[phase]
    role, region = known.code[whole.track[record]], whole.region[record].astype(np.int64)
    kernel = whole.warps.kernel[whole.track[record]]
    width, height = len(known.names), len(whole.regions)
    first, _, group = group_equal((kernel * width + role) * height + region)
    names, rows = kernel_names(whole), []
    for number, at in enumerate(first.tolist()):
        inside = group == number
        total = float(ns[inside].sum())
        before, flight, landed = (float(part[inside].sum()) / total if total else 0.0 for part in parts)
        signalled = inside & (phase != NO_PHASE)
        code = known.code[whole.track[last[signalled]]] * height + whole.region[last[signalled]]
        signals, of = np.unique(code, return_inverse=True)
        time = np.bincount(of.ravel(), ns[signalled], len(signals))
        longest = np.argsort(-time)
        place = names[int(kernel[at])], known.names[int(role[at])], whole.regions[int(region[at])].name
        let_go = tuple(
            (known.names[one // height], whole.regions[one % height].name, part / total if total else 0.0)
            for part, one in zip(time[longest].tolist(), signals[longest].tolist(), strict=True)
        )
        rows.append(BarrierWait(*place, total, before, flight, landed, let_go))
    return tuple(sorted(rows, key=lambda row: (row.kernel, -row.warp_time_ns)))
