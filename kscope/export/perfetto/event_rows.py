"""Events as rows of bytes of equal width, column by column.

    word  0  0a LEN 40 t    a packet, and its time: a varint of nine bytes, UNIX ns
          1  t t t t
          2  t t t t
          3  50 81 80 80    the packet sequence
          4  00 5a LEN 48   an event, and its type
          5  type 50 n n    a begin: its name. An end has no name; its type fills the four bytes
          6  58 u u u       its track
    then, if the file has them:
      3 words  cycles of a begin: 22 0a 08 NAME | 18 c c c | c c c c. Of an end, words 5 to 9 are its track, then its
               exact begin in ns: 02 48 02 58 | u u u 22 | 0b 08 NAME 29 | double
      2 words  the source line of a begin or an instant: 22 06 08 NAME | 88 01 i i
      4 words  the value of a begin or an instant, the number of a counter
      3 words  name and track again, five bytes each, if there are too many for the fields above

Padding is valid protobuf: varints may be longer than necessary, and unused words repeat the type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...util.arrays import U32, U64, Bytes, Int64
from ..timeline import Timeline
from . import tracks
from .arrow_ends import write_padded
from .row_words import MOST_CYCLES, SORTS, clocks, cycles, filler, set_exact, times, values
from .tracks import Names, varint

Unsigned = npt.NDArray[np.unsignedinteger[Any]]

FEW_NAMES, FEW_TRACKS = 1 << 14, 1 << 21
"""Limits of varints of two and three bytes."""
_SEQUENCE = 0x50 | (tracks.SEQUENCE | 0x80) << 8 | 0x8080 << 16
_EVENT = 19  # bytes before the event itself
_NAMELESS, _NAMELESS_END = 0x00808080 | tracks.COUNTER, 0x00808080 | tracks.END
_PLACED_END = 0x58 << 24 | (tracks.END << 8 | 0x48) << 8 | tracks.END
_EXACT = 0x29 << 24 | tracks.START_NS << 16 | 0x080B
_CYCLES, _TIMER = tracks.CYCLES << 24 | 0x080A22, tracks.TIMER_NS << 24 | 0x080A22


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of the items (m,) of a few blocks. ticks: -1 for slices of warps. exact: bits of float64 ns, or None."""

    name: Unsigned
    track: npt.NDArray[np.int32]
    ticks: Int64
    exact: U64 | None


class RowEncoder:
    """Encodes events as rows of `words` words; set_times() adds their times."""

    def __init__(self, timeline: Timeline, names: Names) -> None:
        self._names, self._records = names, len(timeline.trace)
        self._ticks = timeline.trace.dur_cycles
        self._exact = None if timeline.exact is None else timeline.exact.view(np.uint64)
        args = self._exact is not None
        self._name_ids = np.arange(len(names.text), dtype=np.uint32) + np.uint32(1)
        self._track_ids = np.arange(names.tracks, dtype=np.uint32) + np.uint32(tracks.FIRST_TRACK)
        self._many = len(names.text) >= FEW_NAMES or names.tracks >= FEW_TRACKS
        self._where = _lines(names) if args and names.lines else None
        self.words = 7 + 3 * args + 2 * (self._where is not None) + 4 * (names.values is not None) + 3 * self._many
        name, track = self._name_ids & np.uint32(FEW_NAMES - 1), self._track_ids & np.uint32(FEW_TRACKS - 1)
        name, track = times(name) & np.uint32(0x7FFF), times(track) & np.uint32(0x7FFFFF)
        self._packet = self.words * 4 - 2
        lead = np.uint32(0x5A << 8 | (self._packet - 17) << 16 | 0x48 << 24)
        self._named = _pair(lead, np.uint32(tracks.BEGIN | 0x50 << 8) | name << np.uint32(16))
        self._ended = _pair(lead, np.uint32(_PLACED_END if args else _NAMELESS_END))
        place = np.uint32(0x58) | track << np.uint32(8)
        self._placed = _pair(place, _clocks(timeline, names))
        self._placed_end = _pair(track | np.uint32(0x22 << 24), np.uint32(_EXACT)) if args else self._placed

    def columns(self, near: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Columns:
        """The columns of the items that near() extracts from each column."""
        track, ticks = near(self._names.track), near(self._ticks)
        if len(ticks) < len(track):
            ticks = np.concatenate([ticks, np.full(len(track) - len(ticks), -1)])
        return Columns(near(self._names.name), track, ticks, None if self._exact is None else near(self._exact))

    def begins(self, columns: Columns, at: Int64, items: Int64, out: U32) -> None:
        """Fill rows (m, words) with begins, instants and counters: items (m,), at indices `at` of the columns."""
        names, place = self._names, 7
        name, track = columns.name.take(at), columns.track.take(at)
        kind = None if names.kinds is None else names.kinds.take(items)
        _put(out, 4, self._named.take(name))
        if kind is not None:
            points = np.flatnonzero((kind == Names.POINT) | (kind == Names.POINT_VALUE))
            out[points, 5] += np.uint32(tracks.INSTANT - tracks.BEGIN)
            out[np.flatnonzero(kind == Names.COUNTER), 5] = _NAMELESS
        if self._exact is None:
            out[:, 6] = self._placed.take(track).astype(np.uint32)
        else:
            _put(out, 6, self._placed.take(track))
            _cycles(columns.ticks.take(at), kind, out)
            place = 10
        if self._where is not None:
            _put(out, place, self._where.take(name))
            place += 2
        if names.values is not None and kind is not None:
            record = items < self._records
            number = np.zeros(len(items))
            number[record] = names.values[items[record]]
            pairs = values(kind, number)
            if names.integers is not None:
                set_exact(pairs, kind, names.integers, items, np.flatnonzero(record))
            _put(out, place, pairs[:, 0])
            _put(out, place + 2, pairs[:, 1])
            place += 4
        if self._many:
            nameless = None if kind is None else np.flatnonzero(kind == Names.COUNTER)
            self._wide_ids(out[:, place:], name, track, nameless, tracks.COUNTER)

    def ends(self, columns: Columns, at: Int64, items: Int64, out: U32) -> None:
        """Fill rows (m, words) with ends; arguments as in begins()."""
        place, track = 7, columns.track.take(at)
        _put(out, 4, self._ended)
        if columns.exact is None:
            out[:, 6] = self._placed.take(track).astype(np.uint32)
        else:
            _put(out, 6, self._placed_end.take(track))
            _put(out, 8, columns.exact.take(at))
            place = 10
        if self._where is not None:
            out[:, place : place + 2] = filler(np.array(tracks.END, np.uint32))
            place += 2
        if self._names.values is not None:
            out[:, place : place + 4] = filler(np.array(tracks.END, np.uint32))
            place += 4
        if self._many:
            self._wide_ids(out[:, place:], None, track, np.arange(len(at)), tracks.END)

    def set_times(self, out: U32, now: U64) -> None:
        """Fill words 0 to 3 of rows: `now` (m,) UNIX ns, below 2^63."""
        words, last = clocks(now)
        low = words.astype(np.uint32)
        out[:, 0] = low << np.uint32(24) | np.uint32(0x0A | self._packet << 8 | 0x40 << 16)
        out[:, 1] = (words >> np.uint64(8)).astype(np.uint32)
        out[:, 2] = (words >> np.uint64(40)).astype(np.uint32) | last << np.uint32(24)
        out[:, 3] = _SEQUENCE

    def _wide_ids(
        self, out: U32, name: Unsigned | None, track: npt.NDArray[np.int32], nameless: Int64 | None, sort: int
    ) -> None:
        """Twelve bytes: 50 n n n n n 58 u u u u u, or 58 u u u u u and the type without a name."""
        where = np.empty((len(out), 12), np.uint8)
        where[:, 0], where[:, 6] = 0x50, 0x58
        if name is not None:
            write_padded(where[:, 1:6], self._name_ids[name])
        write_padded(where[:, 7:], self._track_ids[track])
        if nameless is not None:
            where[nameless, 0:6] = where[nameless, 6:]
            where[nameless, 6:] = (0x48, sort) * 3
        out[...] = where.view("<u4")


def packets(encoder: RowEncoder, rows: U32, now: U64, more: Mapping[int, bytes]) -> Iterator[memoryview | bytes]:
    """Rows as bytes, in pieces.

    Args:
        encoder: made the rows.
        rows: (m, words).
        now: (m,) UNIX ns.
        more: extra fields by row.
    """
    encoder.set_times(rows, now)
    flat, done = rows.view(np.uint8), 0
    for row in sorted(more):
        yield flat[done:row].reshape(-1).data
        yield _extended(flat[row : row + 1], np.frombuffer(more[row], np.uint8)[None]).tobytes()
        done = row + 1
    yield flat[done:].reshape(-1).data


def _extended(rows: Bytes, fields: Bytes) -> Bytes:
    """Rows (m, width) with extra fields (m, bytes) of their events."""
    event = rows.shape[1] - _EVENT + fields.shape[1]
    length = varint(event)
    packet = varint(_EVENT - 3 + len(length) + event)
    parts = (b"\x0a" + packet, rows[:, 2 : _EVENT - 2], b"\x5a" + length, rows[:, _EVENT:], fields)
    columns = [np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part for part in parts]
    return np.hstack([np.broadcast_to(column, (len(rows), column.shape[-1])) for column in columns])


def _cycles(ticks: Int64, kind: Bytes | None, out: U32) -> None:
    """Fill words 8 and 9 of begins, or words 7 to 9 with filler. Modifies `ticks`."""
    if kind is not None:
        ticks[kind >= Names.POINT] = -1
    _put(out, 8, cycles(ticks))
    if int(ticks.view(np.uint64).max(initial=0)) >= MOST_CYCLES:
        without = np.flatnonzero(ticks.view(np.uint64) >= MOST_CYCLES)
        sort = np.uint32(tracks.BEGIN) if kind is None else SORTS[kind[without]]
        out[without, 7:10] = np.reshape(filler(np.asarray(sort)), (-1, 1))


def _clocks(timeline: Timeline, names: Names) -> U32:
    """Word 7 by track: the argument that names a duration in ticks."""
    timer = timeline.trace.warps.timer
    rows = timeline.rows
    named = np.full(names.tracks, _CYCLES, np.uint32)  # unused for counters
    named[: len(rows)][timer[rows]] = _TIMER
    return named


def _lines(names: Names) -> U64:
    """The annotation of each name's source line as two words, or filler."""
    sorts = np.array(names.sorts, np.uint32)
    words = _pair(filler(sorts), filler(sorts))
    for name, line in names.lines.items():
        number = 0x88 | 0x01 << 8 | (line & 127 | 128) << 16 | line >> 7 << 24
        words[name] = number << 32 | tracks.WHERE << 24 | 0x080622
    return words


def _pair(first: Any, second: Any) -> U64:
    """Two words as one."""
    return np.asarray(np.asarray(second).astype(np.uint64) << np.uint64(32) | first, np.uint64)


def _put(out: U32, at: int, pairs: U64) -> None:
    """Write two words of each row from word `at` on; as one if aligned."""
    if at % 2 == 0 and out.shape[1] % 2 == 0:
        out.view("<u8")[:, at // 2] = pairs
    else:
        out[:, at] = pairs.astype(np.uint32)
        out[:, at + 1] = (pairs >> np.uint64(32)).astype(np.uint32)
