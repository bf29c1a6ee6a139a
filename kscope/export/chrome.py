"""Chrome's trace event JSON, through orjson: for chrome://tracing, Perfetto and everything that reads it.

A launch is a process, a recording lane a thread. A tid that equals its pid, or 0 or 1, makes viewers
merge tracks and drop slices: tids begin after all pids, and after 1. They rise from SM to SM, block to
block, warp to warp: Perfetto sorts by them, and not by sort_index. What lives here: the JSON. What
does not: what is shown (timeline.py). Format: "Trace Event Format", Google, 2016.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
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


@dataclass(frozen=True)
class _Threads:
    """tid: (tracks,) int64, of each track. names: (pid, name) of those that are drawn, by tid."""

    tid: npt.NDArray[np.int64]
    names: dict[int, tuple[int, str]]


def _threads(timeline: Timeline) -> _Threads:
    warps = timeline.trace.warps
    index, rows = drawn_tracks(timeline)
    first = _FIRST_PID + len(timeline.trace.launches) + 1
    tid = np.zeros(len(timeline.tracks), np.int64)
    tid[index] = np.arange(first, first + len(index))
    columns = (tid[index].tolist(), warps.launch[rows].tolist(), warps.sm[rows].tolist(), track_names(timeline, index))
    names = {one: (_FIRST_PID + launch, f"SM {sm} {name}") for one, launch, sm, name in zip(*columns, strict=True)}
    return _Threads(tid, names)


def _chunks(timeline: Timeline) -> Iterator[list[Event]]:
    threads = _threads(timeline)
    yield _problems(timeline, _FIRST_PID + len(timeline.trace.launches) + 1 + len(timeline.tracks))
    yield from _names(timeline, threads)
    yield from _lifetimes(timeline, threads)
    yield from _records(timeline, threads)


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


def _names(timeline: Timeline, threads: _Threads) -> Iterator[list[Event]]:
    before = None
    for tid, (pid, name) in threads.names.items():
        place = {"pid": pid, "tid": tid}
        if pid != before:  # launches come one after the other
            yield [_meta("process_name", {"name": launch_name(timeline, pid - _FIRST_PID)}, **place)]
            before = pid
        yield [_meta("thread_name", {"name": name}, **place), _meta("thread_sort_index", {"sort_index": tid}, **place)]


def _lifetimes(timeline: Timeline, threads: _Threads) -> Iterator[list[Event]]:
    warps, count = timeline.trace.warps, len(timeline.trace)
    for a in range(0, len(timeline.alive), _CHUNK):
        part = slice(a, a + _CHUNK)
        rows = timeline.alive[part]
        items = slice(count + a, count + a + _CHUNK)
        columns = (
            threads.tid[rows],
            warps.launch[rows],
            timeline.begin[items],
            timeline.end[items],
            warps.finished[rows],
        )
        yield [
            {
                "ph": "X", "name": LIFETIME if done else UNFINISHED, "cat": "warp", "pid": _FIRST_PID + launch,
                "tid": tid, "ts": begin / 1000, "dur": (end - begin) / 1000,
            }
            for tid, launch, begin, end, done in zip(*(column.tolist() for column in columns), strict=True)
        ]  # fmt: skip


def _records(timeline: Timeline, threads: _Threads) -> Iterator[list[Event]]:
    """Spans as X, instants as i, counters as C. Whole ns: viewers cut the rest off, and nesting with it."""
    trace = timeline.trace
    names = [region.name for region in trace.regions]
    for a in range(0, len(trace), _CHUNK):
        part = slice(a, min(a + _CHUNK, len(trace)))
        track = trace.track[part]
        begin = timeline.begin[part]
        columns = (
            trace.region[part], trace.kind[part], trace.warps.launch[track] + _FIRST_PID,
            threads.tid[timeline.track[part]], begin / 1000, (timeline.end[part] - begin) / 1000,
            timeline.span[part], trace.value[part],
        )  # fmt: skip
        yield [
            _event(threads, names[region], kind, pid, tid, ts, dur, span, value)
            for region, kind, pid, tid, ts, dur, span, value in zip(*(c.tolist() for c in columns), strict=True)
        ]


def _event(
    threads: _Threads, name: str, kind: int, pid: int, tid: int, ts: float, dur: float, span: bool, value: float
) -> Event:
    event: Event = {"name": name, "pid": pid, "tid": tid, "ts": ts}
    if kind == Kind.COUNTER:
        # Viewers key a counter by process and name: the lane is part of the name.
        return {
            **event,
            "ph": "C",
            "name": f"{name}, {threads.names[tid][1]}",
            "args": {"value": value if value == value else None},
        }
    if span:
        event["ph"], event["cat"], event["dur"] = "X", "region", dur
    else:
        event["ph"], event["s"] = "i", "t"
        if kind <= Kind.SPAN_VALUE:
            event["name"] = f"{name} (duration unknown)"
    if value == value:
        event["args"] = {"value": int(value) if value.is_integer() else value}
    return event
