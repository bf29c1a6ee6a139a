"""Perfetto's .pftrace, written by numpy alone.

One packet sequence for the whole file, events in order of time on an incremental clock, and every
event as wide as every other (protobuf allows padded varints), so that columns become bytes. What lives
here: the order of events. What does not: their bytes (pfrows.py), the tracks and names at the head of
the file (pftracks.py), and what is shown (timeline.py).

Events at one time: first the ends of spans, inner ones first; then the begins, outer ones first; then
what has no length, each begin before its end. Items of a lane stand in order of end, lifetimes last,
so this is the order of their numbers, reversed for begins; a stable sort by time keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ..parallel import ahead, chunks, each
from .pfrows import Look, advance, rows
from .pftracks import Names, head
from .progress import Step
from .timeline import Timeline

Int64 = npt.NDArray[np.int64]
Unsigned = npt.NDArray[np.unsignedinteger[Any]]

WINDOW = 1 << 19
"""Events that are sorted together: their keys and numbers stay in a core's cache."""
_BLOCK = 16
_SAMPLE = 1 << 16


def write(timeline: Timeline, file: BinaryIO, step: Step) -> None:
    """Write the whole file. Memory: the columns, and a few windows of events."""
    names = Names(timeline)
    file.write(head(timeline, names))
    spans, points = int(timeline.span.sum()), int((~timeline.span).sum())
    events, all_events = 0, 2 * (spans + len(timeline.alive)) + points
    clock = told = 0
    for window in _Events(timeline, names).windows():
        file.write(advance(window.first - clock))
        for piece in window.pieces:
            file.write(piece)
        clock = window.last
        events += window.events
        step(len(timeline.trace) * events // all_events - told)
        told = len(timeline.trace) * events // all_events


@dataclass(frozen=True)
class _Window:
    """Encoded events, in order; the first one stands at `first`."""

    first: int
    last: int
    pieces: list[memoryview | bytes]
    events: int


class _Events:
    """The items of a timeline as begins and ends in order of time, a window at a time."""

    def __init__(self, timeline: Timeline, names: Names) -> None:
        # half as many bytes where 4 seconds are enough
        width = np.uint32 if int(timeline.end.max(initial=0)) < (1 << 32) - 1 else np.uint64
        self._begin, self._end = _as(timeline.begin, width), _as(timeline.end, width)
        self._flat = bool((self._begin == self._end).any())
        self._look = Look(timeline, names)
        self._names = names
        # Items stand lane after lane, so a block of neighbours spans little time: most windows skip most blocks.
        cuts = np.arange(0, len(self._begin), _BLOCK)
        self._earliest = np.minimum.reduceat(self._begin, cuts) if len(cuts) else cuts
        self._latest = np.maximum.reduceat(self._end, cuts) if len(cuts) else cuts

    def windows(self) -> Iterator[_Window]:
        """The windows in order of time, made on all cores, a few ahead of the reader."""
        edges = self._edges()
        yield from (window for window in ahead(self._window, pairwise(edges)) if window)

    def _edges(self) -> list[int]:
        """Times between which about WINDOW events lie."""
        if not len(self._begin):
            return [0]
        step = max(1, len(self._begin) // _SAMPLE)
        sample = np.sort(np.concatenate([self._begin[::step], self._end[::step]]))
        windows = -(-2 * len(self._begin) // WINDOW)
        cuts = sample[np.arange(1, windows) * len(sample) // windows]
        return np.unique([0, *cuts.tolist(), int(self._end.max()) + 1]).tolist()  # type: ignore[no-any-return]  # ints

    def _window(self, edges: tuple[int, int]) -> _Window | None:
        """The events of low <= ns < high, encoded."""
        low, high = edges
        found = self._arranged(low, high)
        if found is None:
            return None
        items, ends, time = found
        order = _order(time)
        out: list[memoryview | bytes] = []
        first = before = int(time[order[0]])
        for part in chunks(len(order)):
            index = order[part]
            now = time.take(index)
            is_end = index < ends if isinstance(ends, int) else ends[index]
            pieces = [*rows(self._look, np.diff(now, prepend=now.dtype.type(before)), is_end, items.take(index))]
            out.append(b"".join(pieces) if len(pieces) > 1 else pieces[0])  # one write for thousands of pieces
            before = int(now[-1])
        return _Window(low + first, low + before, out, len(order))

    def _arranged(
        self, low: int, high: int
    ) -> tuple[npt.NDArray[np.int32], int | npt.NDArray[np.bool_], Unsigned] | None:
        """(items, ends, ns after `low`) of a window's events in the order that ties keep. `ends` is the
        number of ends, which stand first, or a mask where there are events without length."""
        number = self._begin.dtype.type
        blocks = np.flatnonzero((self._earliest <= number(high - 1)) & (self._latest >= number(low)))
        begin, end = self._near(self._begin, blocks), self._near(self._end, blocks)
        begin -= number(low)  # what was before is now far behind
        end -= number(low)
        span = number(high - low)
        ending, starting = end < span, begin < span
        flat = np.flatnonzero(starting & (begin == end)) if self._flat else np.zeros(0, np.int64)
        if len(flat):
            ending[flat] = starting[flat] = False
        at_end, at_begin = np.flatnonzero(ending), np.flatnonzero(starting)[::-1]
        index, time = np.concatenate([at_end, at_begin]), np.concatenate([end[at_end], begin[at_begin]])
        ends: int | npt.NDArray[np.bool_] = len(at_end)
        near = (blocks.astype(np.int32)[:, None] * _BLOCK + np.arange(_BLOCK, dtype=np.int32)).ravel()
        if len(flat):
            kinds = self._names.kinds
            twice = flat if kinds is None else flat[kinds[near[flat]] <= Names.SPAN_VALUE]
            pair = np.sort(np.concatenate([flat, twice]))  # each begin before its end
            second = np.zeros(len(pair), bool)
            second[1:] = pair[1:] == pair[:-1]
            ends = np.concatenate([np.arange(len(index)) < len(at_end), second])
            index, time = np.concatenate([index, pair]), np.concatenate([time, begin[pair]])
        if not len(index):
            return None
        return near[index], ends, time.astype(np.uint32, copy=False) if span < 1 << 32 else time

    def _near(self, column: Unsigned, blocks: Int64) -> Unsigned:
        """The items of the blocks, one block after the other; the last block may be short."""
        whole = len(column) // _BLOCK
        inside = blocks[blocks < whole]
        found = column[: whole * _BLOCK].reshape(-1, _BLOCK)[inside].ravel()
        return found if len(inside) == len(blocks) else np.concatenate([found, column[whole * _BLOCK :]])


def _as(column: Int64, width: type[np.unsignedinteger[Any]]) -> Unsigned:
    """The column as unsigned numbers, converted on all cores."""
    out = np.empty(len(column), width)

    def convert(part: slice) -> None:
        out[part] = column[part]

    each(convert, chunks(len(column)))
    return out


def _order(time: Unsigned) -> Int64:
    """A stable argsort of times from 0: numpy's stable sort of 16-bit numbers is a radix sort, several
    times faster than its sorts of wider ones."""
    span = int(time.max())
    if span >= 1 << 32:
        return np.argsort(time, kind="stable")
    order = np.argsort(time.astype(np.uint16), kind="stable")
    if span >= 1 << 16:
        order = order[np.argsort((time >> np.uint32(16)).astype(np.uint16)[order], kind="stable")]
    return order
