"""Chrome's trace event JSON ("Trace Event Format", Google, 2016), for chrome://tracing and Perfetto. A GPU is a
process; a launch and each of its warps are threads (threads.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import orjson

from ..capture.layout import Kind
from ..tracedata.info import info
from ..tracedata.values import distinct
from ..util.arrays import Bools, Bytes, Int64
from ..util.json_values import clean
from ..util.parallel import chunks, map_ahead
from ..util.progress import Step
from . import row_notes, text_cells
from .flows import arrival
from .launch_rows import LaunchRow, launch_rows
from .sample_counters import UNIT, counters
from .text_cells import SPACE
from .threads import Threads, threads_of
from .timeline import EMPTY, Timeline

Event = dict[str, Any]
Rows = slice | Int64
_CHUNK = 1 << 14
_EVENTS = 1 << 13
"""Least events of a batch."""
_SHORT = 64
"""Longer names are written in separate batches by power of two of their length, so that they do not widen all rows."""
_FAR = 2.0**52


def write(timeline: Timeline, file: BinaryIO, step: Step) -> None:
    """Write the file in batches of some ten thousand events.

    Times count from baseTimeNanoseconds, UNIX ns. Records are written as columns of text, padded with spaces to equal
    width; other events by orjson.
    """
    about: dict[str, Any] = {"tool": "kscope", "origin_unix_ns": timeline.origin, "tick_ns": timeline.trace.tick_ns}
    about["recorded"] = info(timeline.trace).to_dict()
    problems = [one.as_dict() for one in timeline.problems]
    head = orjson.dumps({
        "displayTimeUnit": "ns", "baseTimeNanoseconds": max(0, timeline.origin),
        "otherData": {**about, "problems": problems},
    })  # fmt: skip
    file.write(head[:-1] + b',"traceEvents":[')
    first = 1
    for piece in pieces(timeline, threads_of(timeline), launch_rows(timeline), step):
        file.write(memoryview(piece)[first:])  # every event begins with a comma
        first = 0
    file.write(b"\n]}\n")


def pieces(
    timeline: Timeline, threads: Threads, launches: Mapping[int, LaunchRow], step: Step
) -> Iterator[bytes | memoryview]:
    """All events of a timeline on its threads, each with a comma before it. launches: those of launch_rows()."""
    for events in _other_events(timeline, threads, launches):
        if events:
            yield b",\n" + orjson.dumps(events)[1:-1]
    records = _Records(timeline, threads)
    parts = chunks(len(timeline.trace), text_cells.at_once(_CHUNK, records.width))[::-1]
    for part, rows in zip(parts, map_ahead(records.rows, parts), strict=True):
        for piece in rows:
            yield piece.reshape(-1).data
        step(part.stop - part.start)


def _other_events(timeline: Timeline, threads: Threads, launches: Mapping[int, LaunchRow]) -> Iterator[list[Event]]:
    """All events except the records."""
    yield from _names(timeline, threads)
    yield _launches(threads, launches)
    yield from _empty(timeline, threads)
    yield from _arrows(timeline, threads)
    yield _problems(timeline, threads)
    yield from _counters(timeline, threads, launches)


def _counters(timeline: Timeline, threads: Threads, launches: Mapping[int, LaunchRow]) -> Iterator[list[Event]]:
    """Stall samples over time, of the first GPU: samples name none."""
    if timeline.trace.samples is None:
        return
    origin = max(0, timeline.origin)
    for one in counters(timeline, launches):
        about = {"ph": "C", "name": one.name, "pid": threads.home}
        times = (np.maximum(one.time - origin, 0) / 1000).tolist()
        yield [{**about, "ts": ts, "args": {UNIT: rate}} for ts, rate in zip(times, one.rate.tolist(), strict=True)]


def _problems(timeline: Timeline, threads: Threads) -> list[Event]:
    """Problems: instants at the beginning, on the last row of the first GPU."""
    if not timeline.problems:
        return []
    tid = threads.free
    place = {"pid": threads.home, "tid": tid}
    return [
        _meta("thread_name", {"name": "problems of this recording"}, **place),
        _meta("thread_sort_index", {"sort_index": tid}, **place),
        *(
            {
                "ph": "i", "s": "t", "ts": 0, "name": clean(f"{one.kind}: {one.text}"),
                "args": {"count": one.count}, **place,
            }
            for one in timeline.problems
        ),
    ]  # fmt: skip


def _meta(name: str, args: Event, *, pid: int, tid: int) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


def _names(timeline: Timeline, threads: Threads) -> Iterator[list[Event]]:
    """Names of processes and threads; the arguments of a row are those of its name."""
    found = [
        _meta("process_name", {"name": name}, pid=pid, tid=threads.free) for pid, name in threads.processes.items()
    ]
    roles = timeline.roles
    role = [roles.names[code] for code in roles.code.tolist()]
    known = [
        (one.name, one.values.tolist(), one.known.tolist())
        for one in (row_notes.arguments(timeline.trace) if timeline.view.args else ())
    ]
    for tid, thread in threads.rows.items():
        place, about = {"pid": thread.pid, "tid": tid}, Event()
        if thread.row is not None and timeline.view.args:
            about = {"role": clean(role[thread.row])}
            about |= {name: values[thread.row] for name, values, valid in known if valid[thread.row]}
        found.append(_meta("thread_name", {"name": thread.name, **about}, **place))
        found.append(_meta("thread_sort_index", {"sort_index": tid}, **place))
        if len(found) >= _EVENTS:
            yield found
            found = []
    yield found


def _launches(threads: Threads, launches: Mapping[int, LaunchRow]) -> list[Event]:
    events = []
    for tid, thread in threads.rows.items():
        if thread.launch is not None:
            row, place = launches[thread.launch], {"ph": "X", "cat": "launch", "pid": thread.pid, "tid": tid}
            own = (clean(row.name), row.begin, row.end, {"args": row.arguments})
            for name, begin, end, about in (own, *((*one, {}) for one in row.around)):
                events.append({**place, "name": name, "ts": begin / 1000, "dur": (end - begin) / 1000, **about})
    return events


def _empty(timeline: Timeline, threads: Threads) -> Iterator[list[Event]]:
    """The slices of warps without records."""
    count = len(timeline.trace)
    for part in chunks(len(timeline.empty)):
        rows = timeline.empty[part]
        items = slice(count + part.start, count + part.stop)
        columns = (threads.pid[rows], threads.tid[rows], timeline.begin[items], timeline.end[items])
        yield [
            {
                "ph": "X", "name": EMPTY, "cat": "warp", "pid": pid, "tid": tid, "ts": begin / 1000,
                "dur": (end - begin) / 1000,
            }
            for pid, tid, begin, end in zip(*(column.tolist() for column in columns), strict=True)
        ]  # fmt: skip


def _arrows(timeline: Timeline, threads: Threads) -> Iterator[list[Event]]:
    """Flow events bind to the slice at their time, or without "bp" to the next one: an arrow to a span's end gets an
    instant there, because Perfetto turns an arrow around that ends at a slice which began before the arrow's source.
    """
    flows, names = timeline.flows, [clean(region.name) for region in timeline.trace.regions]
    for part in chunks(len(flows)):
        source, target, at_end = flows.source[part], flows.target[part], flows.at_end[part]
        last = np.maximum(timeline.end[target] - 1, timeline.begin[target])
        sides = (("s", source, timeline.begin[source]), ("f", target, np.where(at_end, last, timeline.begin[target])))
        for phase, record, time in sides:
            track = timeline.track[record]
            columns = (timeline.trace.region[source], threads.pid[track], threads.tid[track], time, at_end)
            events = list[Event]()
            for row, (region, pid, tid, ns, late) in enumerate(zip(*(one.tolist() for one in columns), strict=True)):
                place = {"pid": pid, "tid": tid, "ts": ns / 1000}
                arrow = {"ph": phase, "cat": "flow", "id": part.start + row + 1, "name": names[region], **place}
                if late and phase == "f":
                    events += [arrow, {"ph": "i", "s": "t", "name": arrival(names[region]), **place}]
                else:
                    events.append(arrow | {"bp": "e"})
            yield events


class _Records:
    """Records as rows of text: spans as X, instants as i, counters as C. Times are whole ns: viewers truncate
    fractions, which would break nesting."""

    def __init__(self, timeline: Timeline, threads: Threads) -> None:
        trace = timeline.trace
        self._timeline, self._trace = timeline, trace
        names = [clean(region.name) for region in trace.regions]
        self._names = [orjson.dumps(name) for name in (*names, *(f"{name} (duration unknown)" for name in names))]
        self._widths = np.array([max(_SHORT, 1 << (len(name) - 1).bit_length()) for name in self._names], np.int64)
        self.width = int(self._widths.max(initial=_SHORT))
        self._row = np.zeros(len(self._names), np.int64)
        self._tables: dict[int, Bytes] = {}
        for width in np.unique(self._widths).tolist():
            same = np.flatnonzero(self._widths == width)
            self._row[same] = np.arange(len(same))
            self._tables[width] = text_cells.table([self._names[number] for number in same.tolist()], SPACE)
        places = zip(threads.pid.tolist(), threads.tid.tolist(), strict=True)
        self._places = text_cells.table([b',"pid":%d,"tid":%d' % place for place in places], SPACE)
        self._threads = {tid: thread.name for tid, thread in threads.rows.items()}
        self._tid = threads.tid
        clock = trace.warps.timer.astype(np.intp)
        rows = timeline.rows
        self._clock = text_cells.table([b',"args":{"cycles":', b',"args":{"timer_ns":'], SPACE)[clock[rows]]
        lines = [b"" if one.where is None else b',"where":' + orjson.dumps(clean(one.where)) for one in trace.regions]
        self._lines = text_cells.table([*lines, *lines], SPACE) if any(lines) else None
        self._valued = np.array([region.kind in (Kind.SPAN_VALUE, Kind.INSTANT_VALUE) for region in trace.regions])

    def rows(self, part: slice) -> list[Bytes]:
        """The records of a slice as JSON, each preceded by a comma."""
        kind, span = self._trace.kind[part], self._timeline.span[part]
        counter = kind == Kind.COUNTER
        lost = ~span & (kind <= Kind.SPAN_VALUE)
        name = self._trace.region[part].astype(np.intp)
        name[lost] += len(self._trace.regions)
        rows = []
        widths = self._widths[name]
        for width, names in self._tables.items():
            of_width = widths == width
            for at, local in _each(part, span & of_width):
                rows.append(self._spans(at, names.take(self._row[name[local]], axis=0)))
            for at, local in _each(part, ~span & ~counter & of_width):
                rows.append(self._points(at, names.take(self._row[name[local]], axis=0)))
            rows += [self._counters(at, name[local]) for at, local in _each(part, counter & of_width)]
        return rows

    def _cells(self, at: Rows, names: Bytes, phase: bytes) -> list[bytes | Bytes]:
        """The common cells of spans and instants: name, track, time."""
        begin = text_cells.thousandths(self._timeline.begin[at], SPACE)
        place = self._places.take(self._timeline.track[at], axis=0)
        return [phase, names, place, b',"ts":', begin]

    def _spans(self, at: Rows, names: Bytes) -> Bytes:
        length = self._timeline.end[at] - self._timeline.begin[at]
        cells = self._cells(at, names, b',\n{"ph":"X","cat":"region","name":')
        cells += [b',"dur":', text_cells.thousandths(length, SPACE)]
        exact = self._timeline.exact
        if exact is None:
            return text_cells.rows(len(names), *cells, *self._value(at, b',"args":{"value":', b"}"), b"}")
        lines = [] if self._lines is None else [self._lines.take(self._trace.region[at], axis=0)]
        start = np.rint(np.clip(exact[at], -_FAR, _FAR) * 1000).astype(np.int64)
        clock = self._clock.take(self._timeline.track[at], axis=0)
        cells += [clock, text_cells.whole(self._trace.dur_cycles[at], SPACE)]
        cells += [b',"start_ns":', text_cells.thousandths(start, SPACE), *self._value(at, b',"value":', b""), *lines]
        return text_cells.rows(len(names), *cells, b"}}")

    def _points(self, at: Rows, names: Bytes) -> Bytes:
        cells = self._cells(at, names, b',\n{"ph":"i","s":"t","name":')
        return text_cells.rows(len(names), *cells, *self._value(at, b',"args":{"value":', b"}"), b"}")

    def _counters(self, at: Rows, name: Int64) -> Bytes:
        """Viewers identify a counter by process and name, so the name includes the warp."""
        track = self._timeline.track[at]
        pairs, which = np.unique(np.stack([track, name], axis=1), axis=0, return_inverse=True)
        titles = [
            orjson.dumps(f"{orjson.loads(self._names[region])}, {self._threads[tid]}")
            for tid, region in zip(self._tid[pairs[:, 0]].tolist(), pairs[:, 1].tolist(), strict=True)
        ]
        numbers, values = distinct(self._trace.value, self._trace.integers, at)
        return text_cells.rows(
            len(name), b',\n{"ph":"C","name":', text_cells.table(titles, SPACE)[which.ravel()], self._places[track],
            b',"ts":', text_cells.thousandths(self._timeline.begin[at], SPACE), b',"args":{"value":',
            text_cells.table([text_cells.number(number) for number in numbers], SPACE)[values], b"}}",
        )  # fmt: skip

    def _value(self, at: Rows, before: bytes, after: bytes) -> list[bytes | Bytes]:
        """Cells of the values; none if no record has one."""
        if not self._valued[self._trace.region[at]].any():
            return []
        numbers, which = distinct(self._trace.value, self._trace.integers, at)
        texts = [before + text_cells.number(number) + after if number == number else b"" for number in numbers]
        return [text_cells.table(texts, SPACE)[which]]


def _each(part: slice, mask: Bools) -> Iterator[tuple[Rows, Rows]]:
    """The masked records of a slice and their indices in it, if any, in reverse: of spans with equal times, viewers
    draw the first in the file as the outer one."""
    if mask.all():
        yield slice(part.stop - 1, part.start - 1 if part.start else None, -1), slice(None, None, -1)
    elif mask.any():
        at = np.flatnonzero(mask)[::-1]
        yield part.start + at, at
