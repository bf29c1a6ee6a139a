"""The head of a .pftrace: names, and the tree of tracks.

    GPU -> launch -> group, such as an SM (groups.py; or swapped) -> rows of warps, each before its counters

Fields are those of trace_packet.proto, track_descriptor.proto, track_event.proto and interned_data.proto of Perfetto
v52.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from struct import pack

import numpy as np

from ...capture.layout import Kind
from ...tracedata.info import info
from ...tracedata.values import Integers
from ...util.arrays import Bools, Bytes, Float, Int64
from ...util.grouping import grouped
from ...util.parallel import chunks, map_ahead
from ...util.text_columns import TextColumn, constant, joined, summed, varints
from ..groups import BETWEEN, TOP, Hierarchy, hierarchy
from ..launch_rows import LaunchRow, launch_rows
from ..row_notes import arguments, row_arguments
from ..sample_counters import UNIT, Counter, counters
from ..timeline import EMPTY, Timeline

SEQUENCE = 1
ARGUMENTS = ("value", "cycles", "start_ns", "timer_ns", "where")
"""Interned names of annotations, numbered from 1."""
VALUE, CYCLES, START_NS, TIMER_NS, WHERE = range(1, 6)
PROBLEMS = "problems of this recording"

FIRST_TRACK = 16
_ROWS = 1 << 13
"""Descriptors of a part: their bytes fit a core's cache."""
_EXPLICIT, _NO_MERGE = 3, 2
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
"""TrackEvent.Type"""
_MOST_RANK = (1 << 31) - 1
_MOST_LINES = (1 << 14) - 1
"""Source lines that fit a varint of two bytes; regions of further ones are shown without."""


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [_varint(value) for value in range(1 << 12)]
"""Most numbers, and the keys of all fields."""


def varint(value: int) -> bytes:
    """A protobuf varint of a number from 0 to 2^64 - 1."""
    if value < len(_SMALL):
        return _SMALL[value]
    if value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    if value < 1 << 28:
        return _varint(value)
    low = bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127 | 128, value >> 21 & 127 | 128))
    return low + _high(value >> 28)


@lru_cache(1 << 12)
def _high(value: int) -> bytes:
    """The rest of a large number's varint: times share it."""
    return _varint(value)


def number(field: int, value: int) -> bytes:
    """A varint field."""
    return _SMALL[field << 3] + varint(value)


def fixed(field: int, value: int) -> bytes:
    """A field of eight bytes."""
    return _SMALL[field << 3 | 1] + value.to_bytes(8, "little")


def block(field: int, data: bytes | str) -> bytes:
    """A length-delimited field: a message or a string."""
    data = data.encode("utf-8", "replace") if isinstance(data, str) else data
    return _SMALL[field << 3 | 2] + varint(len(data)) + data


def packet(body: bytes) -> bytes:
    """A packet of the trace."""
    return block(1, body)


_UNMERGED = number(15, _NO_MERGE)
_ORDERED = number(11, _EXPLICIT)
_IN_SEQUENCE = number(10, SEQUENCE)


class Names:
    """Interned names and tracks of the items of a timeline.

    Attributes:
        text: the names.
        name: (n + w,) index into `text`.
        track: (n + w,) index of a track: those of the timeline, then one per counter of a warp.
        tracks: number of tracks.
        counters: (track, region) of each counter track.
        kinds: (n + w,) uint8 codes, or None if all are PLAIN.
        values: (n,) float64, or None if all are PLAIN.
        where: source lines.
        lines: number of the source line, from 1, by index into `text`.
        sorts: the type of an event by index into `text`.
    """

    PLAIN, SPAN_VALUE, POINT, POINT_VALUE, COUNTER = range(5)

    def __init__(self, timeline: Timeline) -> None:
        trace = timeline.trace
        names = [region.name for region in trace.regions]
        self.text = [EMPTY, *names, *(f"{name} (duration unknown)" for name in names)]
        self.name = np.empty(len(timeline.begin), np.uint16 if len(self.text) < 1 << 16 else np.uint32)
        np.add(trace.region, 1, out=self.name[: len(trace)], casting="unsafe")
        self.name[len(trace) :] = 0
        known = sorted({region.where for region in trace.regions if region.where})[:_MOST_LINES]
        self.where, line = known, {where: index + 1 for index, where in enumerate(known)}
        self.lines = {
            1 + index + more: line[region.where or ""]
            for index, region in enumerate(trace.regions)
            for more in (0, len(names))
            if (region.where or "") in line and region.kind != Kind.COUNTER
        }
        sorts = {Kind.INSTANT: INSTANT, Kind.INSTANT_VALUE: INSTANT, Kind.COUNTER: COUNTER}
        of_region = [sorts.get(region.kind, BEGIN) for region in trace.regions]
        self.sorts = [BEGIN, *of_region, *(INSTANT for _ in of_region)]
        self.track = timeline.track
        self.counters: list[tuple[int, int]] = []
        self.tracks = timeline.tracks
        self.kinds: Bytes | None = None
        self.values: Float | None = None
        self.integers: Integers | None = None
        if not timeline.span.all() or any(region.kind == Kind.SPAN_VALUE for region in trace.regions):
            self._special(timeline)

    def _special(self, timeline: Timeline) -> None:
        """Codes, values, names and counter tracks of records that are not plain spans."""
        trace = timeline.trace
        kind = trace.kind
        codes = np.zeros(16, np.uint8)
        codes[[Kind.SPAN_VALUE, Kind.INSTANT, Kind.INSTANT_VALUE, Kind.COUNTER]] = (
            self.SPAN_VALUE, self.POINT, self.POINT_VALUE, self.COUNTER,
        )  # fmt: skip
        code = codes[kind]
        lost = ~timeline.span & (kind <= Kind.SPAN_VALUE)
        code[lost & (kind == Kind.SPAN)] = self.POINT
        code[lost & (kind == Kind.SPAN_VALUE)] = self.POINT_VALUE
        self.name[: len(trace)][lost] += len(trace.regions)
        self.kinds = np.concatenate([code, np.zeros(len(timeline.empty), np.uint8)])
        self.values, self.integers = trace.value, trace.integers
        counts = np.flatnonzero(code == self.COUNTER)
        if len(counts):
            pairs = np.stack([timeline.track[counts], trace.region[counts].astype(np.int32)], axis=1)
            distinct, which = np.unique(pairs, axis=0, return_inverse=True)
            self.counters = [(track, region) for track, region in distinct.tolist()]
            self.track = self.track.copy()
            self.track[counts] = (timeline.tracks + which.ravel()).astype(np.int32)
            self.tracks += len(self.counters)


@dataclass(frozen=True)
class Beside:
    """Tracks of another profiler in the same file.

    Attributes:
        parent: uuid of the track below which each launch is shown, by launch.
        flow: number of the arrow that ends at each launch, by launch.
    """

    parent: Mapping[int, int]
    flow: Mapping[int, int]


def head(timeline: Timeline, names: Names, beside: Beside | None = None) -> Iterator[bytes]:
    """The bytes before the first event, in pieces.

    Perfetto's UI expands the outermost group only if it is the only one, so there is no process beside the GPU, no
    clock snapshot, and no group of problems.
    """
    interned = _texts(2, names.text) + _texts(3, ARGUMENTS) + _texts(29, names.where)
    first = packet(number(10, SEQUENCE) + number(13, 1) + block(12, interned))
    yield from (first, packet(_recorded(timeline)))
    yield from _tree(timeline, names, beside)


def _recorded(timeline: Timeline) -> bytes:
    """Facts about the recording, as ChromeMetadata: Perfetto shows it under "Info and stats"."""
    return number(10, SEQUENCE) + block(5, block(2, block(1, "kscope") + block(2, info(timeline.trace).line)))


def _texts(field: int, texts: Sequence[str]) -> bytes:
    """Interned strings, numbered from 1."""
    return b"".join(block(field, number(1, index + 1) + block(2, text)) for index, text in enumerate(texts))


def _tree(timeline: Timeline, names: Names, beside: Beside | None) -> Iterator[bytes]:
    """Descriptors of the GPUs, and of the drawn launches, groups, tracks and counters, parents first; the launches as
    slices, and the problems as instants."""
    drawn = hierarchy(timeline, nested=True)
    if beside is not None:
        drawn = replace(drawn, parent=_below_launches(timeline, drawn))
    group, origin, launches = FIRST_TRACK + names.tracks, max(0, timeline.origin), launch_rows(timeline)
    held = _held(timeline, names)
    step = 2 + max(map(len, held.values()), default=0)  # ranks between two rows: their group's, and their counters'
    for index, one in enumerate(drawn.groups):
        parent = None if one.parent == TOP else group + one.parent
        flow = b""
        if beside is not None:
            if parent is None:
                continue  # the other profiler has the GPU
            if one.launch is not None:
                parent = beside.parent[one.launch]
                flow = fixed(48, beside.flow[one.launch]) if one.launch in beside.flow else b""
        yield descriptor(group + index, parent, one.name, one.place * step, _ORDERED)
        if one.launch is not None:
            yield from launch_slice(launches[one.launch], group + index, origin, flow)
    parents = group + drawn.parent
    known, own = arguments(timeline.trace) if timeline.view.args else (), np.ones(len(drawn.index), bool)
    own[list(drawn.suffixes)] = False

    def bodies(part: slice) -> bytes:
        ranks = np.arange(part.start, part.stop) * step + 1
        notes = row_arguments(timeline, known, drawn.row[part])
        return _bodies(FIRST_TRACK + drawn.index[part], parents[part], drawn.labels(part), ranks, notes, own[part])

    yield from map_ahead(bodies, chunks(len(drawn.index), _ROWS))
    labels = drawn.names() if drawn.suffixes or held else []
    for at in drawn.suffixes:
        yield descriptor(FIRST_TRACK + int(drawn.index[at]), int(parents[at]), labels[at], at * step + 1)
    for at in np.flatnonzero(np.isin(drawn.index, list(held))).tolist() if held else ():
        for more, (place, region) in enumerate(held[int(drawn.index[at])], 2):
            name = f"{labels[at]}{BETWEEN}{timeline.trace.regions[region].name}"
            yield descriptor(place, int(parents[at]), name, at * step + more, block(8, b""))
    gpu = None if beside is not None or not len(timeline.drawn) else group
    after, rank = group + len(drawn.groups), len(drawn.index) * step
    yield from _problems(timeline, after, gpu, rank)
    for place, counter in enumerate(counters(timeline, launches), 1):
        yield from _counter(counter, after + place, gpu, rank + place)


def _below_launches(timeline: Timeline, drawn: Hierarchy) -> Int64:
    """The parents of the tracks where no launch's rows are directly below the GPU."""
    at = {one.launch: index for index, one in enumerate(drawn.groups) if one.launch is not None}
    own = [index for index, one in enumerate(drawn.groups) if one.parent == TOP]
    launch = timeline.trace.warps.launch[drawn.row]
    flat = np.flatnonzero(np.isin(drawn.parent, own))
    parent: Int64 = np.array(drawn.parent)
    parent[flat] = [at[one] for one in launch[flat].tolist()]
    return parent


def _held(timeline: Timeline, names: Names) -> dict[int, list[tuple[int, int]]]:
    """(uuid, region) of the counters of each track that has some."""
    counters = enumerate(names.counters, FIRST_TRACK + timeline.tracks)
    return grouped((track, (uuid, region)) for uuid, (track, region) in counters)


def _problems(timeline: Timeline, uuid: int, gpu: int | None, rank: int) -> Iterator[bytes]:
    """Problems: instants at the beginning, on the last row of the first GPU or group."""
    if not timeline.problems:
        return
    yield descriptor(uuid, gpu, PROBLEMS, rank)
    for problem in timeline.problems:
        event = number(9, INSTANT) + number(11, uuid) + block(23, f"{problem.kind}: {problem.text}")
        yield packet(number(8, max(0, timeline.origin)) + number(10, SEQUENCE) + block(11, event))


def _counter(one: Counter, uuid: int, gpu: int | None, rank: int) -> Iterator[bytes]:
    """A counter below the first GPU: samples name none."""
    yield descriptor(uuid, gpu, one.name, rank, block(8, block(6, UNIT)))
    about = number(9, COUNTER) + number(11, uuid)
    for ns, rate in zip(one.time.tolist(), one.rate.tolist(), strict=True):
        event = about + fixed(44, int.from_bytes(pack("<d", rate), "little"))
        yield packet(number(8, ns) + number(10, SEQUENCE) + block(11, event))


def launch_slice(row: LaunchRow, uuid: int, origin: int, more: bytes = b"") -> Iterator[bytes]:
    """A launch as a slice on its row. more: further fields of its begin."""
    notes = b"".join([_note(name, value) for name, value in row.arguments.items()])
    end = number(9, END) + number(11, uuid)
    begin = number(9, BEGIN) + number(11, uuid)
    slices = [(row.begin, row.end, _event_name(row.name) + notes + more)]
    slices += [(first, last, _event_name(name)) for name, first, last in row.around]
    events = [pair for first, last, rest in sorted(slices) for pair in ((first, begin + rest), (last, end))]
    for ns, event in events:
        yield packet(number(8, origin + ns) + _IN_SEQUENCE + block(11, event))


@lru_cache(1 << 12)
def _event_name(name: str) -> bytes:
    return block(23, name)


@lru_cache(1 << 12)
def _note(name: str, value: str | int) -> bytes:
    """Part of a launch's slice; launches share most values."""
    return block(4, _title(name) + (block(6, value) if isinstance(value, str) else number(4, value)))


@lru_cache(1 << 8)
def _title(name: str) -> bytes:
    return block(10, name)


def descriptor(uuid: int, parent: int | None, name: str, rank: int = 0, extra: bytes = b"") -> bytes:
    """A track. rank: its place among those of the same parent."""
    body = number(1, uuid) + block(2, name) + extra
    if parent is not None:
        body += number(5, parent) + number(12, min(rank, _MOST_RANK)) + _UNMERGED
    return packet(_IN_SEQUENCE + block(60, body))


def _bodies(
    uuids: Int64, parents: Int64, names: TextColumn, ranks: Int64, notes: Sequence[TextColumn], which: Bools
) -> bytes:
    """Same as descriptor(), for many tracks with a description in parts, for those in a mask."""

    def always(data: bytes) -> TextColumn:
        return constant(data, len(uuids))

    fields = [
        always(b"\x08"), varints(uuids), always(b"\x12"), varints(names.sizes), names,
        always(b"\x28"), varints(parents), always(b"\x60"), varints(np.minimum(ranks, _MOST_RANK)), always(_UNMERGED),
        always(b"\x72"), varints(summed(notes)), *notes,
    ]  # fmt: skip
    track = [always(number(10, SEQUENCE) + varint(60 << 3 | 2)), varints(summed(fields)), *fields]
    whole = joined(always(b"\x0a"), varints(summed(track)), *track)
    return (whole if which.all() else whole.where(which)).tobytes()
