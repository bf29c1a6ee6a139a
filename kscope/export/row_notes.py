"""Notes on the rows of a timeline: the warp's place, its lifetime, and its cost of recording.

sm, linear_block, warp  its place; cluster, cluster_rank in kernels with clusters
start_ns         its start, ns after the trace's origin
cycles           from the start anchor to the end anchor (timer_ns with clock="globaltimer")
records, dropped records written, and how many of them are missing
prologue_least   cycles of the start anchor: lower bound of the recording cost before the kernel's code
prologue_most    cycles from start to first record: anchor, claim, and the kernel's own code
epilogue_least   cycles of the end anchor
epilogue_most    cycles from last record to the end anchor's last clock read; stores after that are not visible
error_ns         bound of the time difference to other SMs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..tracedata.data import TraceData
from ..util.arrays import Bools, Int64
from ..util.json_values import clean
from ..util.runs import heads
from ..util.text_columns import TextColumn, constant, decimals, take
from .timeline import Timeline


@dataclass(frozen=True, eq=False)
class Argument:
    """One number about every row.

    Attributes:
        name: its name.
        values: (w,) int64.
        known: (w,) bool, the value is valid.
    """

    name: str
    values: Int64
    known: Bools


def arguments(trace: TraceData) -> tuple[Argument, ...]:
    """The arguments, for every row of trace.warps."""
    warps = trace.warps
    first, last, recorded = _extent(trace.whole)  # filtered records cost time too
    cycles = ~warps.timer
    life = np.rint((warps.end_ns - warps.start_ns) / np.where(warps.tick_ns > 0, warps.tick_ns, 1))
    life = np.clip(np.nan_to_num(life), 0, 1 << 62).astype(np.int64)
    done = warps.finished
    anchored = done & recorded & cycles
    error = np.clip(np.nan_to_num(np.ceil(warps.error_ns)), 0, 1 << 62).astype(np.int64)
    every, clusters = np.ones(len(warps), bool), warps.cluster >= 0
    return (
        Argument("sm", warps.sm.astype(np.int64), every),
        Argument("linear_block", warps.block, every),
        Argument("warp", warps.warp.astype(np.int64), every),
        Argument("cluster", warps.cluster, clusters),
        Argument("cluster_rank", warps.cluster_rank.astype(np.int64), clusters),
        Argument("start_ns", np.rint(np.clip(warps.start_ns, 0, 1 << 62)).astype(np.int64), every),
        Argument("cycles", life, done & cycles),
        Argument("timer_ns", life, done & warps.timer),
        Argument("records", warps.written, every),
        Argument("dropped", warps.written - warps.records, warps.written > warps.records),
        Argument("prologue_least", warps.start_width, every),
        Argument("prologue_most", np.maximum(first - warps.first_tick, 0), recorded & cycles),
        Argument("epilogue_least", warps.end_width, done),
        Argument("epilogue_most", np.maximum(warps.first_tick + life - last, 0) + warps.end_width, anchored),
        Argument("error_ns", error, np.isfinite(warps.error_ns)),
    )


def row_arguments(timeline: Timeline, known: Sequence[Argument], rows: Int64) -> list[TextColumn]:
    """The arguments of rows (t,) as text, in parts: ``role load (inferred), sm 12, block 3, warp 4, ...``."""
    roles = timeline.roles
    parts = [constant(b"role ", len(rows)), take([clean(name).encode() for name in roles.names], roles.code[rows])]
    for one in known:
        there = one.known[rows]
        if there.any():
            both = constant(f", {one.name} ".encode(), len(rows)), decimals(np.maximum(one.values[rows], 0))
            parts += both if there.all() else [part.where(there) for part in both]
    return parts


def _extent(trace: TraceData) -> tuple[Int64, Int64, Bools]:
    """First start and last end of each warp's records, in ticks, and a mask of warps with records."""
    first, last = np.zeros((2, len(trace.warps)), np.int64)
    recorded = np.zeros(len(trace.warps), bool)
    if len(trace):
        cuts = heads(trace.track)
        rows = trace.track[cuts]
        first[rows] = np.minimum.reduceat(trace.start_ticks, cuts)
        end = np.append(cuts[1:], len(trace)) - 1  # sorted by end within a warp
        last[rows] = trace.start_ticks[end] + np.maximum(trace.dur_cycles[end], 0)
        recorded[rows] = True
    return first, last, recorded
