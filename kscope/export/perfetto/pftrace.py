"""Perfetto's .pftrace, written with numpy alone: one packet sequence, events in order of time, every event padded to
equal width, so that columns become bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, pairwise
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ...util.arrays import Int64
from ...util.parallel import CHUNK, chunks, each, map_ahead
from ...util.progress import Step
from ..timeline import Timeline
from .arrow_ends import Arrows, arrivals
from .event_rows import RowEncoder, packets
from .tracks import Beside, Names, head

Unsigned = npt.NDArray[np.unsignedinteger[Any]]

WINDOW = 1 << 18
"""Events per sort: their keys and indices fit a core's cache."""
_LOG2_BLOCK = 4
_BLOCK = 1 << _LOG2_BLOCK
_SAMPLE = 1 << 16


def write(timeline: Timeline, file: BinaryIO, step: Step, beside: Beside | None = None) -> None:
    """Write the file. Memory: the columns and a few windows of events. beside: another profiler's tracks in it.

    Times are UNIX ns: a clock snapshot would add a group to Perfetto's UI. Order at equal times: ends of spans, inner
    first; begins, outer first; then items without length, each begin before its end. Items of a warp are sorted by end,
    so this is the order of their indices, reversed for begins, which a stable sort by time preserves.
    """
    names = Names(timeline)
    spans, points = int(timeline.span.sum()), int((~timeline.span).sum())
    events, all_events = 0, 2 * (spans + len(timeline.empty)) + points
    reported = 0
    windows = _Events(timeline, names).windows()
    begun = list(islice(windows, 1))  # the pool starts its threads while this thread writes the head
    file.writelines(head(timeline, names, beside))
    file.writelines(arrivals(timeline))
    for window in chain(begun, windows):
        file.writelines(window.pieces)
        events += window.events
        done = len(timeline.trace) * events // all_events
        step(done - reported)
        reported = done


@dataclass(frozen=True, eq=False)
class _Arranged:
    """The m events of a window in tie order: `ending` ends, then begins, then items without length.

    index: (m,) place of the item in _near()'s result for `blocks`. ends: (m,) the event is an end. time: (m,) ns after
    the window's begin.
    """

    blocks: Int64
    index: Int64
    items: Int64
    ends: npt.NDArray[np.bool_]
    time: Unsigned
    ending: int


@dataclass(frozen=True)
class _Window:
    """Encoded events."""

    pieces: list[memoryview | bytes]
    events: int


class _Events:
    """The items of a timeline as begins and ends in order of time, a window at a time."""

    def __init__(self, timeline: Timeline, names: Names) -> None:
        # 32 bits suffice for 4 seconds
        count, most = len(timeline.begin), int(timeline.end.max(initial=0))
        width = np.uint32 if most < (1 << 32) - 1 else np.uint64
        self._last = most
        self._begin, self._end = np.empty((2, count), width)
        # Items are sorted by warp, so a block of neighbors spans little time: most windows skip most blocks.
        self._earliest, self._latest = np.empty((2, -(-count // _BLOCK)), width)
        flat: list[bool] = []

        def work(part: slice) -> None:
            begin, end = self._begin[part], self._end[part]
            begin[:], end[:] = timeline.begin[part], timeline.end[part]
            cuts = np.arange(0, len(begin), _BLOCK)
            blocks = slice(part.start // _BLOCK, part.start // _BLOCK + len(cuts))
            self._earliest[blocks] = np.minimum.reduceat(begin, cuts)
            self._latest[blocks] = np.maximum.reduceat(end, cuts)
            if (begin == end).any():
                flat.append(True)

        each(work, chunks(count))
        self._flat = bool(flat)
        self._encoder, self._arrows = RowEncoder(timeline, names), Arrows(timeline.flows)
        self._names, self._origin = names, max(0, timeline.origin)

    def windows(self) -> Iterator[_Window]:
        """The windows in order of time, encoded in parallel, a few ahead of the consumer."""
        edges = self._edges()
        yield from (window for window in map_ahead(self._window, pairwise(edges)) if window)

    def _edges(self) -> list[int]:
        """Times that separate windows of about WINDOW events."""
        if not len(self._begin):
            return [0]
        step = max(1, len(self._begin) // _SAMPLE)
        sample = np.sort(np.concatenate([self._begin[::step], self._end[::step]]))
        windows = -(-2 * len(self._begin) // WINDOW)
        cuts = sample[np.arange(1, windows) * len(sample) // windows]
        return np.unique([0, *cuts.tolist(), self._last + 1]).tolist()  # type: ignore[no-any-return]  # ints

    def _window(self, edges: tuple[int, int]) -> _Window | None:
        """Encode the events with low <= ns < high."""
        low, high = edges
        arranged = self._arranged(low, high)
        if not len(arranged.time):
            return None
        more = self._arrows.fields(arranged.items, arranged.ends)
        table, order = self._rows(arranged, more), _order(arranged.time)
        out: list[memoryview | bytes] = []
        space = np.empty((min(len(order), CHUNK), self._encoder.words), np.uint32)
        for part in chunks(len(order)):
            index = order[part]
            rows = table.take(index, axis=0, out=space[: len(index)], mode="clip")
            now = arranged.time.take(index).astype(np.uint64) + np.uint64(self._origin + low)
            longer = np.flatnonzero(rows[:, 1]).tolist() if more else ()
            extra = {row: more[int(index[row])] for row in longer}
            out.append(b"".join(packets(self._encoder, rows, now, extra)))
        return _Window(out, len(order))

    def _rows(self, arranged: _Arranged, more: Collection[int]) -> npt.NDArray[np.uint32]:
        """Rows (m, words) of events in tie order. Word 1 holds 1 if the event is in `more`; set_times() overwrites
        it."""
        rows = np.empty((len(arranged.items), self._encoder.words), np.uint32)
        columns = self._encoder.columns(partial(_near, blocks=arranged.blocks))
        for first, last, fill in (
            (0, arranged.ending, self._encoder.ends),
            (arranged.ending, len(rows), self._encoder.begins),
        ):
            for part in chunks(last - first):
                part = slice(part.start + first, part.stop + first)
                fill(columns, arranged.index[part], arranged.items[part], rows[part])
                rows[part, 1] = 0
        rows[list(more), 1] = 1
        at = np.flatnonzero(arranged.ends[arranged.ending :]) + arranged.ending
        if len(at):
            late = np.empty((len(at), self._encoder.words), np.uint32)
            self._encoder.ends(columns, arranged.index[at], arranged.items[at], late)
            rows[at, 2:] = late[:, 2:]
        return rows

    def _arranged(self, low: int, high: int) -> _Arranged:
        """A window's events in tie order."""
        number = self._begin.dtype.type
        blocks = np.flatnonzero((self._earliest <= number(high - 1)) & (self._latest >= number(low)))
        begin, end = _near(self._begin, blocks), _near(self._end, blocks)
        begin -= number(low)  # unsigned: earlier times wrap to large ones
        end -= number(low)
        span = number(high - low)
        ending, starting = end < span, begin < span
        flat = np.flatnonzero(starting & (begin == end)) if self._flat else np.zeros(0, np.int64)
        if len(flat):
            ending[flat] = starting[flat] = False
        at_end, at_begin = np.flatnonzero(ending), np.flatnonzero(starting)[::-1]
        index, time = np.concatenate([at_end, at_begin]), np.concatenate([end[at_end], begin[at_begin]])
        ends = np.zeros(len(index), bool)
        ends[: len(at_end)] = True
        if len(flat):
            kinds = self._names.kinds
            spans = flat if kinds is None else flat[kinds[_items(blocks, flat)] <= Names.SPAN_VALUE]
            pair = np.sort(np.concatenate([flat, spans]))  # each begin before its end
            second = np.zeros(len(pair), bool)
            second[1:] = pair[1:] == pair[:-1]
            ends = np.concatenate([ends, second])
            index, time = np.concatenate([index, pair]), np.concatenate([time, begin[pair]])
        time = time.astype(np.uint32, copy=False) if span < 1 << 32 else time
        return _Arranged(blocks, index, _items(blocks, index), ends, time, len(at_end))


def _near(column: npt.NDArray[Any], blocks: Int64) -> npt.NDArray[Any]:
    """The items of the blocks, concatenated; the last block may be partial."""
    whole = len(column) // _BLOCK
    count = int(np.searchsorted(blocks, whole))
    items = column[: whole * _BLOCK].reshape(-1, _BLOCK).take(blocks[:count], axis=0).ravel()
    cut = count < len(blocks) and int(blocks[count]) == whole
    return np.concatenate([items, column[whole * _BLOCK :]]) if cut else items


def _items(blocks: Int64, index: Int64) -> Int64:
    """The items (m,) at places (m,) of _near()'s result for the blocks."""
    items = blocks.take(index >> _LOG2_BLOCK)
    items <<= _LOG2_BLOCK
    items |= index & _BLOCK - 1
    return items


def _order(time: Unsigned) -> Int64:
    """A stable argsort of unsigned times, by 16-bit digits: numpy's stable sort of 16-bit numbers is a radix sort,
    several times faster than wider sorts."""
    span = int(time.max())
    if span >= 1 << 32:
        return np.argsort(time, kind="stable")
    order = np.argsort(time.astype(np.uint16), kind="stable")
    if span >= 1 << 16:
        order = order[np.argsort((time >> np.uint32(16)).astype(np.uint16)[order], kind="stable")]
    return order
