"""The head of a .pftrace: clocks, names, and the tree of tracks.

    launch (a process) -> SM -> block and warp -> counters

What lives here: descriptors and interned names, in plain Python, some dozens of bytes per track. What
does not: events (pftrace.py). Fields: trace_packet.proto, track_descriptor.proto, clock_snapshot.proto
and interned_data.proto of Perfetto v52.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..layout import Kind
from .timeline import LIFETIME, UNFINISHED, Timeline

INCREMENTAL, BOOTTIME, REALTIME = 64, 6, 1
SEQUENCE = 1
VALUE_NAME = 1
"""Interned name of the annotation that carries a record's value."""

_FIRST_TRACK = 16
_PROBLEMS_TRACK = 8
_EXPLICIT, _NO_MERGE = 3, 2
_TYPE_INSTANT = 3


def varint(value: int) -> bytes:
    """A protobuf varint of a number from 0 to 2^64 - 1."""
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
    """A length-delimited field: a message, or text."""
    data = data.encode("utf-8", "replace") if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def packet(body: bytes) -> bytes:
    """Trace.packet"""
    return block(1, body)


class Names:
    """Interned names and tracks of every event.

    of_records, of_lifetimes: uint32 name ids. track_of_records, track_of_lifetimes: uint32 uuids.
    kinds: (n + w,) uint8 codes, PLAIN for spans without a value, or None where all are. values: (n,)
    float64 or None.
    """

    PLAIN, SPAN_VALUE, POINT, POINT_VALUE, COUNTER = range(5)

    def __init__(self, timeline: Timeline) -> None:
        trace = timeline.trace
        regions = trace.regions
        self.text = [region.name for region in regions]
        unknown = np.arange(len(regions)) + len(regions)
        self.text += [f"{region.name} (duration unknown)" for region in regions]
        self.text += [LIFETIME, UNFINISHED]
        of_region = np.arange(len(regions), dtype=np.uint32) + 1
        self.of_records = of_region[trace.region]
        finished = trace.warps.finished[timeline.alive]
        self.of_lifetimes = np.where(finished, len(self.text) - 1, len(self.text)).astype(np.uint32)
        self.track_of_records = timeline.track.astype(np.uint32) + np.uint32(_FIRST_TRACK)
        self.track_of_lifetimes = (timeline.alive + _FIRST_TRACK).astype(np.uint32)
        self.counters: list[tuple[int, int]] = []
        self.first_counter = _FIRST_TRACK + len(timeline.tracks)
        self.kinds: npt.NDArray[np.uint8] | None = None
        self.values: npt.NDArray[np.float64] | None = None
        if not timeline.span.all() or any(region.kind == Kind.SPAN_VALUE for region in regions):
            self._special(timeline, unknown)

    def _special(self, timeline: Timeline, unknown: npt.NDArray[np.int64]) -> None:
        """Records that are no plain spans: their codes, values, names and counter tracks."""
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
        self.of_records[lost] = unknown[trace.region[lost]] + 1
        self.kinds = np.concatenate([code, np.zeros(len(timeline.alive), np.uint8)])
        self.values = trace.value
        counts = np.flatnonzero(code == self.COUNTER)
        if len(counts):
            pairs, which = np.unique(
                np.stack([timeline.track[counts], trace.region[counts].astype(np.int32)], axis=1), axis=0, return_inverse=True
            )
            self.counters = [(track, region) for track, region in pairs.tolist()]
            self.track_of_records[counts] = which.astype(np.uint32) + np.uint32(self.first_counter)


def head(timeline: Timeline, names: Names) -> bytes:
    """Everything before the first event."""
    clocks = block(1, number(1, BOOTTIME) + number(2, 0))
    clocks += block(1, number(1, REALTIME) + number(2, max(0, timeline.origin)))
    clocks += block(1, number(1, INCREMENTAL) + number(2, 0) + number(3, 1))
    interned = b"".join(block(2, number(1, index + 1) + block(2, text)) for index, text in enumerate(names.text))
    interned += block(3, number(1, VALUE_NAME) + block(2, "value"))
    first = block(6, clocks) + number(10, SEQUENCE) + number(13, 1)
    first += block(59, number(58, INCREMENTAL)) + block(12, interned)
    return b"".join([packet(first), *_tree(timeline, names), *_problems(timeline)])


def _problems(timeline: Timeline) -> list[bytes]:
    """What is wrong with the data: a track of its own, an instant each, at the very beginning."""
    if not timeline.problems:
        return []
    found = [_descriptor(_PROBLEMS_TRACK, None, "kscope: problems of this recording")]
    for problem in timeline.problems:
        event = number(9, _TYPE_INSTANT) + number(11, _PROBLEMS_TRACK) + block(23, f"{problem.kind}: {problem.text}")
        found.append(packet(number(8, 0) + number(10, SEQUENCE) + block(11, event)))
    return found


def _descriptor(uuid: int, parent: int | None, name: str, rank: int = 0, extra: bytes = b"") -> bytes:
    body = number(1, uuid) + block(2, name) + extra
    if parent is not None:
        body += number(5, parent) + number(12, min(rank, (1 << 31) - 1)) + number(15, _NO_MERGE)
    return packet(number(10, SEQUENCE) + block(60, body))


def _tree(timeline: Timeline, names: Names) -> list[bytes]:
    """Descriptors of the launches, SMs, lanes and counters that are drawn, parents first."""
    trace, warps = timeline.trace, timeline.trace.warps
    drawn = np.zeros(len(timeline.tracks), bool)
    drawn[timeline.track] = True
    drawn[timeline.alive] = True
    tracks = [(index, timeline.tracks[index]) for index in np.flatnonzero(drawn).tolist()]
    uuid = names.first_counter + len(names.counters)
    found: list[bytes] = []
    parents: dict[tuple[int, int], int] = {}
    launches: dict[int, int] = {}
    launch, sm, block_index, warp = (column.tolist() for column in (warps.launch, warps.sm, warps.block, warps.warp))
    tracks.sort(key=lambda item: (launch[item[1].row], sm[item[1].row], block_index[item[1].row], warp[item[1].row]))
    for rank, (index, track) in enumerate(tracks):
        row = track.row
        of = launch[row]
        if of not in launches:
            launches[of], uuid = uuid, uuid + 1
            found.append(_launch(launches[of], of, launch_name(timeline, of)))
        key = (of, sm[row])
        if key not in parents:
            parents[key], uuid = uuid, uuid + 1
            extra = number(11, _EXPLICIT)
            found.append(_descriptor(parents[key], launches[of], f"SM {sm[row]}", sm[row], extra))
        name = track_name(timeline, index)
        extra = number(11, _EXPLICIT) if names.counters else b""
        found.append(_descriptor(_FIRST_TRACK + index, parents[key], name, rank, extra))
    for index, (track_index, region) in enumerate(names.counters):
        extra = block(8, b"")
        parent = _FIRST_TRACK + track_index
        found.append(_descriptor(names.first_counter + index, parent, trace.regions[region].name, index, extra))
    return found


def _launch(uuid: int, index: int, name: str) -> bytes:
    """A launch is shown as a process: viewers fold processes."""
    process = block(3, number(1, index + 1) + block(6, name))
    return packet(number(10, SEQUENCE) + block(60, number(1, uuid) + process + number(11, _EXPLICIT)))


def launch_name(timeline: Timeline, launch: int) -> str:
    """``matmul #3``, with the device where there are several; # counts all launches of the trace."""
    found = timeline.trace.launches[launch]
    device = f" on device {found.device}" if len(timeline.trace.devices) > 1 else ""
    return f"{found.kernel} #{launch}{device}"


def track_name(timeline: Timeline, index: int) -> str:
    """``block 3 warp 0``; further tracks of a lane, for spans that cross, are numbered from 2."""
    track = timeline.tracks[index]
    more = f" ({track.number + 1})" if track.number else ""
    return timeline.trace.warps.label(track.row) + more
