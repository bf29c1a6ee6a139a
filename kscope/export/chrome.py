"""Chrome's trace event JSON, through orjson: for chrome://tracing, Perfetto and everything that reads it.

A launch is a process, a recording lane a thread. A tid that equals its pid, or 0 or 1, makes viewers
merge tracks and drop slices: tids begin after all pids, and after 1. What lives here: the JSON. What
does not: what is shown (timeline.py). Format: "Trace Event Format", Google, 2016.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import orjson

from ..layout import Kind
from .pftracks import drawn_tracks, launch_name, track_names
from .timeline import LIFETIME, UNFINISHED, Timeline

Event = dict[str, Any]
_CHUNK = 1 << 15
_PROBLEMS_PID = 1
_FIRST_PID = 2


def write(timeline: Timeline, file: BinaryIO) -> None:
    """Write the whole file, some ten thousand events at a time."""
    about = {"tool": "kscope", "origin_unix_ns": timeline.origin, "tick_ns": timeline.trace.tick_ns}
    problems = [{"kind": one.kind, "text": one.text, "count": one.count} for one in timeline.problems]
    head = orjson.dumps({"displayTimeUnit": "ns", "otherData": {**about, "problems": problems}})
    file.write(head[:-1] + b',"traceEvents":[')
    first = True
    for events in _chunks(timeline):
        if events:
            file.write((b"" if first else b",\n") + orjson.dumps(events)[1:-1])
            first = False
    file.write(b"]}\n")


def _chunks(timeline: Timeline) -> Iterator[list[Event]]:
    first_tid = _FIRST_PID + len(timeline.trace.launches) + 1
    yield _problems(timeline, first_tid + len(timeline.tracks))
    yield from _names(timeline, first_tid)
    yield from _lifetimes(timeline, first_tid)
    yield from _records(timeline, first_tid)


def _problems(timeline: Timeline, tid: int) -> list[Event]:
    if not timeline.problems:
        return []
    place = {"pid": _PROBLEMS_PID, "tid": tid}
    named = _meta("process_name", {"name": "kscope: problems of this recording"}, **place)
    return [
        named,
        *(
            {"ph": "i", "s": "g", "ts": 0, "name": f"{one.kind}: {one.text}", "args": {"count": one.count}, **place}
            for one in timeline.problems
        ),
    ]


def _meta(name: str, args: Event, *, pid: int, tid: int) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


def _names(timeline: Timeline, first_tid: int) -> Iterator[list[Event]]:
    warps = timeline.trace.warps
    index, rows = drawn_tracks(timeline)
    launches = np.unique(warps.launch[rows]).tolist()
    yield [
        _meta("process_name", {"name": launch_name(timeline, one)}, pid=_FIRST_PID + one, tid=first_tid)
        for one in launches
    ]
    columns = (index.tolist(), warps.launch[rows].tolist(), warps.sm[rows].tolist(), track_names(timeline, index))
    for rank, (track, launch, sm, name) in enumerate(zip(*columns, strict=True)):
        place = {"pid": _FIRST_PID + launch, "tid": first_tid + track}
        yield [
            _meta("thread_name", {"name": f"SM {sm} {name}"}, **place),
            _meta("thread_sort_index", {"sort_index": rank}, **place),
        ]


def _lifetimes(timeline: Timeline, first_tid: int) -> Iterator[list[Event]]:
    warps, count = timeline.trace.warps, len(timeline.trace)
    for a in range(0, len(timeline.alive), _CHUNK):
        part = slice(a, a + _CHUNK)
        rows = timeline.alive[part]
        items = slice(count + a, count + a + _CHUNK)
        columns = (rows, warps.launch[rows], timeline.begin[items], timeline.end[items], warps.finished[rows])
        yield [
            {
                "ph": "X", "name": LIFETIME if done else UNFINISHED, "cat": "warp", "pid": _FIRST_PID + launch,
                "tid": first_tid + row, "ts": begin / 1000, "dur": (end - begin) / 1000,
            }
            for row, launch, begin, end, done in zip(*(column.tolist() for column in columns), strict=True)
        ]  # fmt: skip


def _records(timeline: Timeline, first_tid: int) -> Iterator[list[Event]]:
    """Spans as X, instants as i, counters as C. Whole ns: viewers cut the rest off, and nesting with it."""
    trace = timeline.trace
    names = [region.name for region in trace.regions]
    for a in range(0, len(trace), _CHUNK):
        part = slice(a, min(a + _CHUNK, len(trace)))
        track = trace.track[part]
        begin = timeline.begin[part]
        columns = (
            trace.region[part], trace.kind[part], trace.warps.launch[track] + _FIRST_PID,
            timeline.track[part].astype(np.int64) + first_tid, begin / 1000, (timeline.end[part] - begin) / 1000,
            timeline.span[part], trace.value[part],
        )  # fmt: skip
        yield [
            _event(names[region], kind, pid, tid, ts, dur, span, value)
            for region, kind, pid, tid, ts, dur, span, value in zip(*(c.tolist() for c in columns), strict=True)
        ]


def _event(name: str, kind: int, pid: int, tid: int, ts: float, dur: float, span: bool, value: float) -> Event:
    event: Event = {"name": name, "pid": pid, "tid": tid, "ts": ts}
    if kind == Kind.COUNTER:
        # Viewers key a counter by process and name: the lane is part of the name.
        return {**event, "ph": "C", "name": f"{name} ({tid})", "args": {"value": value if value == value else None}}
    if span:
        event["ph"], event["cat"], event["dur"] = "X", "region", dur
    else:
        event["ph"], event["s"] = "i", "t"
        if kind <= Kind.SPAN_VALUE:
            event["name"] = f"{name} (duration unknown)"
    if value == value:
        event["args"] = {"value": int(value) if value.is_integer() else value}
    return event
