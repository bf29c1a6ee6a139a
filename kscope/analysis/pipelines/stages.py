"""Statistics of a pipeline: stages in use, what each role waits for, latencies, and how many stages it needs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ...tracedata.data import TraceData
from ...tracedata.info import info
from ...tracedata.kernel_names import kernel_names
from ...util.arrays import Float, Int64
from ...util.runs import count_distinct, extents, group_equal, least_of, most_of
from ..roles import Roles, roles
from . import faults
from .data import KernelPipeline, Pipelines, RingStats, RoleWaits
from .phases import NO_PHASE, Phases, phases
from .rings import Ring, released_ns, rings

_PERCENTILES = (50, 90, 99)


def pipelines(trace: TraceData) -> Pipelines:
    """The pipelines of every kernel that was recorded with auto="pipeline".

    Each wait is split by its phase: the time before the phase's last operation was issued (*not issued*), the time
    until the phase completed at the latest (*in flight*), and the rest (*landed*). By Little's law a buffer that is
    filled in L, held for H by its consumers and filled again after R allows one step per (L + H + R) / stages. A
    consumer that computes for C per step never waits from (L + H + R) / C stages on.

    Args:
        trace: the trace; of a filtered one the whole is read.
    """
    whole = trace.whole
    found = phases(whole)
    made = rings(whole, found)
    known, names = roles(whole), kernel_names(whole)
    kernels = []
    for kernel in dict.fromkeys(ring.kernel for ring in made):
        mine = [ring for ring in made if ring.kernel == kernel]
        stats = [_ring(whole, found, made, ring, known) for ring in mine]
        rows = np.unique(np.concatenate([found.row[ring.phases] for ring in mine]))
        findings = faults.findings(whole, found, made, mine, stats, known)
        kernels.append(KernelPipeline(
            names[kernel], len(np.unique(whole.warps.launch[rows])), count_distinct(whole.warps.block_key[rows]),
            tuple(stats), findings,
            faults.picture(whole, found, made, mine),
        ))  # fmt: skip
    recorded = tuple(one for one in whole.problems if one.kind == "pipeline")
    return Pipelines(tuple(kernels), info(trace).caveat, (*recorded, *found.problems))


def _ring(trace: TraceData, found: Phases, made: tuple[Ring, ...], ring: Ring, known: Roles) -> RingStats:
    mine = ring.phases
    first, landed, exact = found.first_ns[mine], found.landed_ns[mine], found.exact[mine]
    released = released_ns(found, made, ring)
    tick = trace.warps.tick_ns[found.row[mine]]
    _, _, block = group_equal(trace.warps.block_key[found.row[mine]])
    # for groups, each warp of a block has its own
    warps = len(np.unique(found.row[mine])) / (int(block.max()) + 1)
    begins, ends = extents(block, int(block.max()) + 1, first, np.where(np.isfinite(landed), landed, first))
    span = float((ends - begins).sum())
    size = np.where(found.expected[mine] > 0, found.expected[mine], np.maximum(found.copied[mine], 0)).astype(float)
    flight = np.where(np.isfinite(landed), landed - first, 0.0)
    used = np.nan_to_num(np.minimum(released, ends[block]) - first) if ring.copies else flight
    known_release = not ring.copies or bool(np.isfinite(released).any())
    cycles = float(np.sum((ends - begins)[block] / tick / np.bincount(block)[block]))
    latency = (landed - first)[exact]
    step = _steps(trace, found, ring)
    late = faults.late_ns(found, made, ring)
    held = released - landed
    late_typical = _median(late[late >= 0], 10)
    held_typical = _median(held[np.isfinite(held)])
    needed = None
    if ring.copies and len(latency) and step > 0:
        whole = float(np.median(latency)) + max(step, _zero(held_typical)) + max(0.0, _zero(late_typical))
        needed = max(1, math.ceil(whole / step - 0.05))
    bubbles = _bubbles(trace, found, ring)
    return RingStats(
        name=name_of(trace, found, ring),
        barriers=() if ring.groups else ring.barriers,
        stages=len(ring.barriers),
        groups=ring.groups,
        copies=ring.copies,
        gives_back=next((name_of(trace, found, one) for one in made if one.back >= 0 and made[one.back] is ring), ""),
        phases=len(mine),
        waits=_by_role(trace, found, ring, known),
        latency_ns=tuple(float(one) for one in np.percentile(latency, _PERCENTILES)) if len(latency) else (),
        exact=int(exact.sum()),
        bytes_per_phase=float(np.median(size)) * warps if len(size) else 0.0,
        bytes_per_cycle=float(size[np.isfinite(landed)].sum() / cycles) if cycles and size.any() else math.nan,
        bytes_in_flight=float((size * flight).sum() / span) if span and size.any() else math.nan,
        in_flight=float(flight.sum() / span / warps) if span else math.nan,
        in_use=float(np.maximum(used, flight).sum() / span / warps) if span and known_release else math.nan,
        step_ns=step,
        held_ns=held_typical,
        late_ns=_median(late[late >= 0]),
        bubbles=int(np.count_nonzero(bubbles)),
        bubble_ns=float(bubbles.sum()),
        needed=needed,
    )


def name_of(trace: TraceData, found: Phases, ring: Ring) -> str:
    """The places that wait for a ring; those that signal it if none waits."""
    records = found.wait_record[ring.waits] if len(ring.waits) else found.signal_record[ring.signals]
    regions = dict.fromkeys(trace.regions[number].name for number in np.unique(trace.region[records]).tolist())
    return ", ".join(name.removeprefix("pipeline ") for name in regions)


def split_waits(trace: TraceData, found: Phases, waits: Int64) -> tuple[Float, Float, Float]:
    """(not issued, in flight, landed): the parts of waits, ns. waits: indices into Phases.wait_record."""
    record, phase = found.wait_record[waits], found.wait_phase[waits]
    begin = trace.start_ns[record]
    end = begin + np.nan_to_num(trace.dur_ns[record])
    none = phase == NO_PHASE
    issued = np.where(none, begin, found.issued_ns[phase])
    landed = np.where(none, begin, found.landed_ns[phase])
    before = np.clip(np.minimum(end, issued) - begin, 0, None)
    flight = np.clip(np.minimum(end, landed) - np.maximum(begin, issued), 0, None)
    return before, flight, np.maximum(end - begin - before - flight, 0.0)


def _by_role(trace: TraceData, found: Phases, ring: Ring, known: Roles) -> tuple[RoleWaits, ...]:
    record = found.wait_record[ring.waits]
    parts = split_waits(trace, found, ring.waits)
    role = known.code[trace.track[record]]
    rows = []
    for code in np.unique(role).tolist():
        mine = role == code
        before, flight, landed = (float(part[mine].sum()) for part in parts)
        count, unknown = (int(np.count_nonzero(one)) for one in (mine, mine & ~found.wait_known[ring.waits]))
        rows.append(RoleWaits(known.names[code], count, before + flight + landed, before, flight, landed, unknown))
    return tuple(sorted(rows, key=lambda row: -row.ns))


def _steps(trace: TraceData, found: Phases, ring: Ring) -> float:
    """Median time of a waiting warp from the end of one wait to the begin of the next; NaN without two."""
    record = np.sort(found.wait_record[ring.waits])
    same = trace.track[record][1:] == trace.track[record][:-1]
    begin = trace.start_ns[record]
    between = begin[1:] - (begin + np.nan_to_num(trace.dur_ns[record]))[:-1]
    return _median(between[same])


def _bubbles(trace: TraceData, found: Phases, ring: Ring) -> Float:
    """(p,) time for which all waiters of a phase waited together, except in each block's first phase."""
    record, phase = found.wait_record[ring.waits], found.wait_phase[ring.waits]
    begin = trace.start_ns[record]
    last_begin = most_of(phase, begin, len(found), -np.inf)
    first_end = least_of(phase, begin + np.nan_to_num(trace.dur_ns[record]), len(found), np.inf)
    mine = ring.phases
    if ring.groups:  # of a single warp: others may work
        return np.zeros(len(mine))
    together = np.where(np.isfinite(first_end[mine]), np.maximum(first_end[mine] - last_begin[mine], 0.0), 0.0)
    _, _, block = group_equal(found.row[mine])
    earliest, _ = extents(block, int(block.max()) + 1, found.first_ns[mine], found.first_ns[mine])
    shortest = float(np.min(trace.dur_ns[record])) if len(record) else 0.0
    return np.where((found.first_ns[mine] == earliest[block]) | (together <= 2 * shortest), 0.0, together)


def _median(values: npt.NDArray[Any], percent: int = 50) -> float:
    return float(np.percentile(values, percent)) if len(values) else math.nan


def _zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value
