"""The head of a .pftrace: clocks, names, and the tree of tracks.

    launch (a process) -> group, such as an SM (groups.py; or swapped) -> lane -> counters

Perfetto's UI sorts processes and their children by name and ignores ranks, so numbers of launches and groups have
leading zeros. Fields: trace_packet.proto, track_descriptor.proto, clock_snapshot.proto and interned_data.proto of
Perfetto v52.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..capture.layout import Kind
from ..tracedata.info import info
from ..util.cells import Cells, constant, joined, varints
from ..util.parallel import chunks
from .groups import hierarchy
from .timeline import LIFETIME, UNFINISHED, Timeline

Int64 = npt.NDArray[np.int64]

INCREMENTAL, BOOTTIME, REALTIME = 64, 6, 1
SEQUENCE = 1
ARGUMENTS = (
    "value", "cycles", "start_ns", "timer_ns", "records", "dropped",
    "prologue_least", "prologue_most", "epilogue_least", "epilogue_most", "error_ns",
)  # fmt: skip
"""Interned names of annotations, numbered from 1: of records, then of lifetimes (lifetimes.py)."""
VALUE, CYCLES, START_NS, TIMER_NS = range(1, 5)

FIRST_TRACK = 16
_PROBLEMS_TRACK = 8
_EXPLICIT, _NO_MERGE = 3, 2
_TYPE_INSTANT = 3


def varint(value: int) -> bytes:
    """A protobuf varint of a number from 0 to 2^64 - 1."""
    if value < 1 << 7:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A varint field."""
    return varint(field << 3) + varint(value)


def block(field: int, data: bytes | str) -> bytes:
    """A length-delimited field: a message or a string."""
    data = data.encode("utf-8", "replace") if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def packet(body: bytes) -> bytes:
    """A packet of the trace."""
    return block(1, body)


_UNMERGED = number(15, _NO_MERGE)
_OF_SEQUENCE = number(10, SEQUENCE) + varint(60 << 3 | 2)


class Names:
    """Interned names and tracks of the items of a timeline.

    Attributes:
        text: the names.
        name: (n + w,) index into `text`.
        track: (n + w,) index of a track: those of the timeline, then one per counter of a lane.
        tracks: number of tracks.
        counters: (track, region) of each counter track.
        kinds: (n + w,) uint8 codes, or None if all are PLAIN.
        values: (n,) float64, or None if all are PLAIN.
    """

    PLAIN, SPAN_VALUE, POINT, POINT_VALUE, COUNTER = range(5)

    def __init__(self, timeline: Timeline) -> None:
        trace = timeline.trace
        names = [region.name for region in trace.regions]
        self.text = [LIFETIME, UNFINISHED, *names, *(f"{name} (duration unknown)" for name in names)]
        self.name = np.empty(len(timeline.begin), np.uint16 if len(self.text) < 1 << 16 else np.uint32)
        np.add(trace.region, 2, out=self.name[: len(trace)], casting="unsafe")
        self.name[len(trace) :] = ~trace.warps.finished[timeline.alive]
        self.track = timeline.track
        self.counters: list[tuple[int, int]] = []
        self.tracks = timeline.tracks
        self.kinds: npt.NDArray[np.uint8] | None = None
        self.values: npt.NDArray[np.float64] | None = None
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
        self.kinds = np.concatenate([code, np.zeros(len(timeline.alive), np.uint8)])
        self.values = trace.value
        counts = np.flatnonzero(code == self.COUNTER)
        if len(counts):
            pairs = np.stack([timeline.track[counts], trace.region[counts].astype(np.int32)], axis=1)
            distinct, which = np.unique(pairs, axis=0, return_inverse=True)
            self.counters = [(track, region) for track, region in distinct.tolist()]
            self.track = self.track.copy()
            self.track[counts] = (timeline.tracks + which.ravel()).astype(np.int32)
            self.tracks += len(self.counters)


def head(timeline: Timeline, names: Names) -> bytes:
    """The bytes before the first event."""
    clocks = block(1, number(1, BOOTTIME) + number(2, 0))
    clocks += block(1, number(1, REALTIME) + number(2, max(0, timeline.origin)))
    clocks += block(1, number(1, INCREMENTAL) + number(2, 0) + number(3, 1))
    interned = b"".join(block(2, number(1, index + 1) + block(2, text)) for index, text in enumerate(names.text))
    interned += b"".join(block(3, number(1, index + 1) + block(2, text)) for index, text in enumerate(ARGUMENTS))
    first = block(6, clocks) + number(10, SEQUENCE) + number(13, 1)
    first += block(59, number(58, INCREMENTAL)) + block(12, interned)
    return b"".join([packet(first), packet(_recorded(timeline)), *_tree(timeline, names), *_problems(timeline)])


def _recorded(timeline: Timeline) -> bytes:
    """How the trace was recorded, as ChromeMetadata: Perfetto shows it under "Info and stats"."""
    return number(10, SEQUENCE) + block(5, block(2, block(1, "kscope") + block(2, info(timeline.trace).line)))


def _problems(timeline: Timeline) -> list[bytes]:
    """Problems: instants at time 0 on a separate track."""
    if not timeline.problems:
        return []
    packets = [_descriptor(_PROBLEMS_TRACK, None, "kscope: problems of this recording")]
    for problem in timeline.problems:
        event = number(9, _TYPE_INSTANT) + number(11, _PROBLEMS_TRACK) + block(23, f"{problem.kind}: {problem.text}")
        packets.append(packet(number(8, 0) + number(10, SEQUENCE) + block(11, event)))
    return packets


def _descriptor(uuid: int, parent: int | None, name: str, rank: int = 0, extra: bytes = b"") -> bytes:
    body = b"\x08" + varint(uuid) + block(2, name) + extra
    if parent is not None:
        body += b"\x28" + varint(parent) + b"\x60" + varint(min(rank, (1 << 31) - 1)) + _UNMERGED
    body = _OF_SEQUENCE + varint(len(body)) + body
    return b"\x0a" + varint(len(body)) + body


def _tree(timeline: Timeline, names: Names) -> Iterator[bytes]:
    """Descriptors of the drawn launches, groups, tracks and counters, parents first."""
    drawn = hierarchy(timeline, padded=True)
    process = FIRST_TRACK + names.tracks
    group = process + len(drawn.processes)
    ordered = number(11, _EXPLICIT)
    for index, name in enumerate(drawn.processes):
        yield _process(process + index, index, name)
    for index, (parent, rank, name) in enumerate(drawn.groups):
        if name:
            yield _descriptor(group + index, process + parent, name, rank, ordered)
    titled = np.array([bool(name) for _, _, name in drawn.groups], bool)
    parents = np.where(titled[drawn.group], group + drawn.group, process + drawn.process)
    extra = ordered if names.counters else b""
    for part in chunks(len(drawn.index)):
        ranks = np.arange(part.start, part.stop)
        body = _bodies(FIRST_TRACK + drawn.index[part], parents[part], drawn.labels.take(part), ranks, extra)
        body = body.where(~np.isin(ranks, list(drawn.suffixes)))
        yield body.tobytes()
    labels = drawn.names() if drawn.suffixes else []
    for rank in drawn.suffixes:
        yield _descriptor(FIRST_TRACK + int(drawn.index[rank]), int(parents[rank]), labels[rank], rank, extra)
    for rank, (track, region) in enumerate(names.counters):
        place = FIRST_TRACK + timeline.tracks + rank
        name = timeline.trace.regions[region].name
        yield _descriptor(place, FIRST_TRACK + track, name, rank, block(8, b""))


def _bodies(uuids: Int64, parents: Int64, names: Cells, ranks: Int64, extra: bytes) -> Cells:
    """As _descriptor, of many tracks."""

    def always(data: bytes) -> Cells:
        return constant(data, len(uuids))

    ranks = np.minimum(ranks, (1 << 31) - 1)
    fields = joined(
        always(b"\x08"), varints(uuids), always(b"\x12"), varints(names.sizes), names, always(extra),
        always(b"\x28"), varints(parents), always(b"\x60"), varints(ranks), always(_UNMERGED),
    )  # fmt: skip
    track = joined(always(_OF_SEQUENCE), varints(fields.sizes), fields)
    return joined(always(b"\x0a"), varints(track.sizes), track)


def _process(uuid: int, index: int, name: str) -> bytes:
    """A process: the top level of the timeline."""
    process = block(3, number(1, index + 1) + block(6, name))
    return packet(number(10, SEQUENCE) + block(60, number(1, uuid) + process + number(11, _EXPLICIT)))
