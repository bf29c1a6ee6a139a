"""Faults of a pipeline, in sentences, and a picture of one block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...tracedata.data import TraceData
from ...util.arrays import Float
from ...util.runs import extents, group_equal
from ...util.terminal import time_text
from ...util.text import number_ranges
from ..roles import Roles
from .committed import label, slot_of
from .data import RingStats
from .phases import Phases
from .rings import Ring, follows, released_ns

_WAITING = 0.05
"""Waits with a smaller share of their warps' time are no finding."""
_WIDTH = 72
_USES = 6
"""Uses of each stage in a picture."""


def findings(
    trace: TraceData, found: Phases, made: tuple[Ring, ...], mine: Sequence[Ring], stats: Sequence[RingStats],
    known: Roles,
) -> tuple[str, ...]:  # fmt: skip
    """The findings of a kernel, the certain ones first.

    Args:
        trace: the trace.
        found: its phases.
        made: all rings.
        mine: those of the kernel.
        stats: of each of these.
        known: roles of warps.
    """
    sentences: list[str] = []
    for ring in mine:
        sentences += _missing_arrivals(trace, found, ring, known)
        sentences += _missing_bytes(found, ring)
    for ring, one in zip(mine, stats, strict=True):
        if ring.copies:
            sentences += _waiting(trace, found, made, ring, one)
    return tuple(sentences)


def _missing_arrivals(trace: TraceData, found: Phases, ring: Ring, known: Roles) -> list[str]:
    open_phases = ring.phases[(found.arrived > 0)[ring.phases] & ~found.complete[ring.phases]]
    if not len(open_phases):
        return []
    first = int(open_phases[np.argmin(found.first_ns[open_phases])])
    records, phase = found.signal_record[ring.signals], found.signal_phase[ring.signals]
    of_block = found.row[phase] == found.row[first]
    arriving = np.unique(trace.track[records[of_block & found.complete[phase]]])
    missing = np.setdiff1d(arriving, trace.track[records[phase == first]])
    text = f"{_phase(found, first)} has {found.arrived[first]} of {found.needed[first]} arrivals, so no warp passes it"
    if len(missing):
        role = sorted({known.names[int(known.code[row])] for row in missing})
        warps = number_ranges(sorted(trace.warps.warp[missing].tolist()))
        text += f": warp {warps} ({', '.join(role)}) arrived in other phases and not in this one"
    more = len(open_phases) - 1
    return [f"missing arrive: {text}" + (f"; so have {more} more phases" if more else "")]


def _missing_bytes(found: Phases, ring: Ring) -> list[str]:
    mine = ring.phases
    differ = (found.expected[mine] > 0) & (found.copied[mine] >= 0) & ~found.multicast[mine]
    differ &= found.copied[mine] != found.expected[mine]
    if not ring.copies or not differ.any() or not (found.copies[mine] > 0).any():
        return []
    first = int(mine[differ][0])
    text = f"{_phase(found, first)} expects {found.expected[first]:,} bytes; its copies deliver {found.copied[first]:,}"
    more = int(differ.sum()) - 1
    return [f"bytes do not match: {text}" + (f"; so do those of {more} more phases" if more else "")]


def _phase(found: Phases, phase: int) -> str:
    return f"phase {found.number[phase]} of {label(int(found.barrier[phase]))} in block {found.block[phase]}"


def _waiting(trace: TraceData, found: Phases, made: tuple[Ring, ...], ring: Ring, stats: RingStats) -> list[str]:
    """Reasons why consumers wait: no free buffer and the copy's latency, or a producer that issues late."""
    records, phase = found.wait_record[ring.waits], found.wait_phase[ring.waits]
    later = found.number[phase] > found.number[ring.phases].min()
    if not later.any():
        return []
    waited = np.nan_to_num(trace.dur_ns[records])
    rows = np.unique(trace.track[records])
    _, _, of = group_equal(trace.track)
    begins, ends = extents(of, int(of.max()) + 1, trace.start_ns, trace.start_ns + np.nan_to_num(trace.dur_ns))
    index = np.unique(trace.track, return_index=True)[0].searchsorted(rows)
    share = float(waited[later].sum() / max(float((ends - begins)[index].sum()), 1e-9))
    if share < _WAITING:
        return []
    late_of = np.zeros(len(found))
    late_of[ring.phases] = np.nan_to_num(np.maximum(late_ns(found, made, ring), 0.0))
    late = np.minimum(waited, late_of[phase])[later].sum() / max(float(waited[later].sum()), 1e-9)
    what = f"its consumers spend {share:.0%} of their time in {stats.name}"
    if late > 0.5:
        return [
            f"the producer issues late: {what}, and a buffer is free for {time_text(stats.late_ns)} "
            f"(median) before a copy into it is issued: {late:.0%} of that wait"
        ]
    if stats.needed is None or (stats.needed <= stats.stages and not np.isfinite(stats.held_ns)):
        return []
    times = (
        f"a copy takes {time_text(stats.latency_ns[0])} (median), consumers take {time_text(stats.step_ns)} per step"
        + (f" and hold a buffer for {time_text(stats.held_ns)}" if np.isfinite(stats.held_ns) else "")
    )
    if stats.needed > stats.stages:
        return [f"too few stages: {what}; it has {stats.stages}, and needs {stats.needed}: {times}"]
    return [
        f"copies are the limit: {what}, although {stats.needed} of {stats.stages} stages are enough for the median "
        f"latency: {times}"
    ]


def late_ns(found: Phases, made: tuple[Ring, ...], ring: Ring) -> Float:
    """Time for which the buffer of each phase of a ring was free before its first operation, ns; NaN if unknown."""
    mine = ring.phases
    free = np.append(np.nan, np.where(follows(found, ring), released_ns(found, made, ring)[:-1], np.nan))
    return np.asarray(found.first_ns[mine] - free)


def picture(trace: TraceData, found: Phases, made: tuple[Ring, ...], mine: Sequence[Ring]) -> tuple[str, ...]:
    """Lines that draw the stages and the waiting warps of the first block of a kernel."""
    ring = max(mine, key=lambda one: (one.copies, len(one.phases)))
    home = found.row[ring.phases] == found.row[ring.phases[0]]
    at = ring.phases[home]
    released = released_ns(found, made, ring)[home]
    lowest = found.number[at].min()
    shown = found.number[at] < lowest + _USES
    begin = float(found.first_ns[at].min())
    last = np.where(np.isfinite(found.landed_ns[at]), found.landed_ns[at], found.issued_ns[at])
    end = float(np.nanmax(np.fmax(released, last)[shown]))
    if not end > begin:
        return ()
    times = begin + (np.arange(_WIDTH) + 0.5) * (end - begin) / _WIDTH
    lines = [f"block {found.block[at[0]]}, {time_text(end - begin)}: = in flight, # landed and in use, w waiting"]
    for number, barrier in enumerate(ring.barriers):
        row = [" "] * _WIDTH
        for phase, free in zip(
            at[ring.stage[home] == number].tolist(), released[ring.stage[home] == number], strict=True
        ):
            landed = min(float(found.landed_ns[phase]), end)
            for column in np.flatnonzero((times >= found.first_ns[phase]) & (times < landed)).tolist():
                row[column] = "="
            until = free if np.isfinite(free) else landed
            for column in np.flatnonzero((times >= landed) & (times < until)).tolist():
                row[column] = "#"
        slot = slot_of(barrier)
        lines.append(f"  {f'{barrier:#x}' if slot is None else f'group {slot[1]}':>8} |{''.join(row)}|")
    for one in (ring, *([made[ring.back]] if ring.back >= 0 else [])):
        for track in _tracks(trace, found, one, int(found.row[at[0]])):
            record = found.wait_record[one.waits]
            record = record[trace.track[record] == track]
            start = trace.start_ns[record]
            stop = start + np.nan_to_num(trace.dur_ns[record])
            waits = np.any((times[:, None] >= start) & (times[:, None] < stop), axis=1)
            text = "".join("w" if yes else "." for yes in np.asarray(waits).tolist())
            lines.append(f"  {f'warp {trace.warps.warp[track]}':>8} |{text}|")
    return tuple(lines)


def _tracks(trace: TraceData, found: Phases, ring: Ring, row: int) -> list[int]:
    """Rows of the warps of a block that wait for a ring, at most one per four warps."""
    warps = trace.warps
    tracks = np.unique(trace.track[found.wait_record[ring.waits]])
    same = (warps.launch[tracks] == warps.launch[row]) & (warps.block[tracks] == warps.block[row])
    chosen: dict[int, int] = {}
    for track in tracks[same].tolist():
        chosen.setdefault(int(warps.warp[track]) // 4, track)
    return list(chosen.values())
