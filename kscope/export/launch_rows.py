"""The rows of launches in a timeline: one slice each, from its first warp's start to its last warp's end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..analysis.warp_stats import warp_ends
from ..tracedata.calls import Call
from ..util.runs import distinct_by, heads
from ..util.text import counted
from .sample_notes import notes
from .timeline import Timeline

LATENCY, DRAIN = "launch latency", "drain"
"""From the begin of another profiler's kernel to the first claim; from the last warp's end to the kernel's."""
_FAR = float(1 << 60)


@dataclass(frozen=True)
class LaunchRow:
    """A launch as a slice.

    Attributes:
        name: the kernel's name.
        begin, end: ns after the timeline's origin.
        arguments: known facts about it, by name.
        around: slices before and after it, (name, begin, end): the rest of another profiler's kernel.
    """

    name: str
    begin: int
    end: int
    arguments: dict[str, str | int]
    around: tuple[tuple[str, int, int], ...] = ()


def launch_rows(timeline: Timeline) -> dict[int, LaunchRow]:
    """The slice of each launch, of the warps that are drawn, by the launch's number."""
    trace, warps = timeline.trace, timeline.trace.warps
    base = trace.origin - timeline.origin
    order = timeline.drawn[np.argsort(warps.launch[timeline.drawn], kind="stable")]
    if not len(order):
        return {}
    first = heads(warps.launch[order])
    begins = np.minimum.reduceat(warps.start_ns[order], first).tolist()
    ends = np.maximum.reduceat(np.nan_to_num(warp_ends(trace))[order], first).tolist()
    records = np.add.reduceat(np.bincount(trace.track, minlength=len(warps))[order], first).tolist()
    counts = np.diff([*first.tolist(), len(order)])
    of, waits = np.repeat(np.arange(len(first)), counts), notes(trace)
    blocks, sms = (distinct_by(of, column[order], len(first)).tolist() for column in (warps.block, warps.sm))
    found = {}
    for at, launch in enumerate(warps.launch[order[first]].tolist()):
        info = trace.launches[launch]
        begin = _after(begins[at], base)
        end = max(begin, _after(ends[at], base))
        x, y, z = info.grid
        arguments: dict[str, str | int] = {
            "grid": f"{x} x {y} x {z}",
            "blocks": f"{blocks[at]:,} of {x * y * z:,} recorded",
            "warps": int(counts[at]),
            "records": records[at],
            "SMs": sms[at],
            "kernel": info.hash,
            "start_unix_ns": timeline.origin + begin,
        }
        arguments |= waits.get(info.kernel_id, {})
        around: tuple[tuple[str, int, int], ...] = ()
        if launch < len(trace.calls):
            call = trace.calls[launch]
            arguments |= _call(call, begin - base, end - base)
            if call.end_ns >= 0:
                around = (LATENCY, max(0, call.begin_ns + base), begin), (DRAIN, end, call.end_ns + base)
        if timeline.problems:
            arguments["problems"] = counted(len(timeline.problems), "problem") + ", on the last row"
        found[launch] = LaunchRow(info.kernel, begin, end, arguments, tuple(one for one in around if one[1] < one[2]))
    return found


def _after(ns: float, base: int) -> int:
    """Whole ns after a base that float64 may not hold; damaged times are clipped."""
    return max(0, round(min(max(ns, -_FAR), _FAR)) + base)


def _call(call: Call, begin: int, end: int) -> dict[str, str | int]:
    """Facts about the launch from another profiler. Readers of Kineto's files assume that every event with the
    arguments `stream` and `correlation` is a kernel.
    """
    found: dict[str, str | int] = {"op": call.op, "module": call.module, "line": call.line}
    found = {name: value for name, value in found.items() if value}
    if call.stream >= 0:
        found |= {"cuda_stream": call.stream, "cuda_correlation": call.correlation}
    if call.end_ns >= 0:
        found |= {"launch_latency_ns": max(0, begin - call.begin_ns), "drain_ns": max(0, call.end_ns - end)}
    return found
