"""Perfetto's .pftrace, written by numpy alone.

One packet sequence for the whole file, events in order of time on an incremental clock, and every
event as wide as every other (protobuf allows padded varints), so that columns become bytes:

    0a LEN  40 t t t t  50 01  5a LEN  48 type+name (4)  58 u u u          20 bytes, a span's begin or end

What lives here: the order of events and their bytes. What does not: the tracks and names at the head of
the file (pftracks.py), rows with values (pfrows.py), and what is shown (timeline.py). Fields:
trace_packet.proto and track_event.proto of Perfetto v52.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from .pfrows import advance, plain_rows, wide_rows
from .pftracks import Names, head
from .timeline import Timeline

Int64 = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

WINDOW = 1 << 21
"""Events that are sorted together."""
_CHUNK = 1 << 15
_SAMPLE = 1 << 14


def write(timeline: Timeline, file: BinaryIO) -> None:
    """Write the whole file. Memory: the columns, and a few windows of events."""
    names = Names(timeline)
    file.write(head(timeline, names))
    for part in _Events(timeline, names).parts():
        file.write(part)


@dataclass(frozen=True)
class _Window:
    """Encoded events of a window of time; the first one's time is relative to nothing yet."""

    first: int
    last: int
    parts: list[Bytes]


class _Events:
    """Records and lifetimes as one numbered list: record i, then lifetime n + j.

    An event's key sorts it: ns, then at one time the ends of spans (inner first), the begins (outer
    first), and what has no length, each begin before its end:

        ns | class 2 bits | number, complemented for begins | 1 = end
    """

    def __init__(self, timeline: Timeline, names: Names) -> None:
        self.begin = np.concatenate([timeline.begin, timeline.alive_begin])
        self.end = np.concatenate([timeline.end, timeline.alive_end])
        self.name = np.concatenate([names.of_records, names.of_lifetimes])
        self.track = np.concatenate([names.track_of_records, names.track_of_lifetimes])
        self.kind, self.value = names.kinds, names.values
        self.bits = max(1, (len(self.begin)).bit_length())
        self.mask = np.uint64((1 << self.bits) - 1)
        self.shift = np.uint64(self.bits + 3)
        self.small = len(names.text) < 1 << 14 and names.first_counter + len(names.counters) < 1 << 21

    def parts(self) -> Iterator[memoryview]:
        """The file's bytes after its head. Windows are made on all cores, a few ahead of the writer."""
        workers = min(os.cpu_count() or 1, 8)
        edges = self._edges()
        jobs: deque[Future[_Window | None]] = deque()
        clock = 0
        with ThreadPoolExecutor(workers) as pool:
            for low, high in zip(edges[:-1], edges[1:], strict=True):
                jobs.append(pool.submit(self._window, low, high))
                while len(jobs) > workers or (high == edges[-1] and jobs):
                    window = jobs.popleft().result()
                    if window is None:
                        continue
                    yield memoryview(advance(window.first - clock))
                    yield from (memoryview(part).cast("B") for part in window.parts)
                    clock = window.last

    def _edges(self) -> list[int]:
        """Times that cut the events into windows of about WINDOW events; each fits the bits of a key."""
        if not len(self.begin):
            return [0]
        step = max(1, len(self.begin) // _SAMPLE)
        sample = np.sort(np.concatenate([self.begin[::step], self.end[::step]]))
        windows = -(-2 * len(self.begin) // WINDOW)
        cuts = sample[np.arange(1, windows) * len(sample) // windows]
        edges = [0, *np.unique(cuts[cuts > 0]).tolist(), int(self.end.max()) + 1]
        widest = 1 << 63 - int(self.shift)
        fitted = [0]
        for low, high in zip(edges[:-1], edges[1:], strict=True):
            # Windows of nothing but idle time between two launches are skipped whole.
            while high - fitted[-1] > widest:
                fitted.append(max(fitted[-1] + widest, min(self._next_event(fitted[-1] + widest), high)))
            fitted.append(high)
        return [edge for edge, following in zip(fitted, [*fitted[1:], -1], strict=True) if edge != following]

    def _next_event(self, time: int) -> int:
        """The first begin or end at or after a time."""
        return int(min(column[column >= time].min(initial=np.iinfo(np.int64).max) for column in (self.begin, self.end)))

    def _window(self, low: int, high: int) -> _Window | None:
        """The events of low <= ns < high in order, encoded."""
        keys = self._keys(low, high)
        if not len(keys):
            return None
        keys.sort()
        first, last = int(keys[0] >> self.shift) + low, int(keys[-1] >> self.shift) + low
        parts, before = [], first - low
        for a in range(0, len(keys), _CHUNK):
            chunk = keys[a : a + _CHUNK]
            time = chunk >> self.shift
            parts.append(self._rows(chunk, np.diff(time, prepend=np.uint64(before))))
            before = int(time[-1])
        return _Window(first, last, parts)

    def _keys(self, low: int, high: int) -> Keys:
        begins = np.flatnonzero((self.begin >= low) & (self.begin < high))
        ends = np.flatnonzero((self.end >= low) & (self.end < high))
        begin, end = self.begin[begins], self.end[ends]
        flat, flat_end = self.end[begins] <= begin, self.begin[ends] >= end
        number = begins.astype(np.uint64)
        middle = np.where(flat, number | np.uint64(2 << self.bits), ~number & self.mask | np.uint64(1 << self.bits))
        begin_keys = (begin - low).astype(np.uint64) << self.shift | middle << np.uint64(1)
        if self.kind is not None:  # a point has one event
            kept = self.kind[ends] <= Names.SPAN_VALUE
            ends, end, flat_end = ends[kept], end[kept], flat_end[kept]
        number = ends.astype(np.uint64)
        middle = np.where(flat_end, number | np.uint64(2 << self.bits), number)
        end_keys = (end - low).astype(np.uint64) << self.shift | middle << np.uint64(1) | np.uint64(1)
        return np.concatenate([begin_keys, end_keys])

    def _rows(self, keys: Keys, delta: Keys) -> Bytes:
        number = (keys >> np.uint64(1)) & self.mask
        is_begin_class = ((keys >> np.uint64(self.bits + 1)) & np.uint64(3)) == 1
        number ^= np.where(is_begin_class, self.mask, np.uint64(0))
        index = number.astype(np.intp)
        end = (keys & np.uint64(1)).astype(bool)
        name, track = self.name.take(index), self.track.take(index)
        kind = None if self.kind is None else self.kind.take(index)
        if self.small and int(delta.max()) < 1 << 28 and (kind is None or not kind.any()):
            return plain_rows(delta.astype(np.uint32), end, name, track)
        if kind is None:
            kind = np.zeros(len(keys), np.uint8)
        value = np.zeros(len(keys))
        if self.value is not None:
            valued = kind != Names.PLAIN
            value[valued] = self.value[index[valued]]
        return wide_rows(delta, end, name, track, kind, value)
