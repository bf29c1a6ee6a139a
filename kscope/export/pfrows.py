"""Events as rows of bytes of one width, column by column.

    word  0  0a LEN 40 t    a packet, and the time since the one before: four bytes of a varint
          1  t t t 50
          2  01 5a LEN 48   the packet sequence; an event, and its type
          3  type 50 n n    a begin: its name. An end has none, its type takes the four bytes
          4  58 u u u       its track
    then, each where the file has it at all:
      3 words  cycles of a begin. Of an end, words 3 to 7 are type, track and the exact begin in ns
      4 words  the value of a begin or an instant, the number of a counter
      3 words  name and track again, five bytes each, where there are too many for the places above

Padding is plain protobuf: a varint may be longer than it must, and of a field that stands twice the
last one counts, so that places without use repeat the type. Few events are longer than their row
(lifetimes, which have more arguments; ends of arrows): these are made one by one. What lives here: the
bytes of an event. What does not: which events, in which order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from . import pfslots
from .pflong import Longer, padded
from .pfslots import BEGIN, COUNTER, END, INSTANT, filler, padded_words
from .pftracks import CYCLES, FIRST_TRACK, SEQUENCE, START_NS, TIMER_NS, Names, varint
from .timeline import Timeline

Unsigned = npt.NDArray[np.unsignedinteger[Any]]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

FEW_NAMES, FEW_TRACKS = 1 << 14, 1 << 21
"""What two bytes of a varint can number, and three."""
_SMALL = 1 << 28
"""Times between events below this fit a row."""
_EVENT = 11  # bytes before the event itself
_NAMELESS_END, _NAMELESS_COUNTER = 0x00808080 | END, 0x00808080 | COUNTER
_EXACT = 0x29 << 24 | START_NS << 16 | 0x080B


def advance(delta: int) -> bytes:
    """A packet that says nothing but the time: `delta` ns after the one before."""
    body = b"\x40" + varint(delta) + b"\x50" + varint(SEQUENCE)
    return b"\x0a" + varint(len(body)) + body


class Look:
    """What each item looks like: tables that rows() indexes.

    times, values: words of pfslots.py, or None where the file has none. longer: see pflong.py.
    """

    def __init__(self, timeline: Timeline, names: Names) -> None:
        self.name, self.track, self.kinds = names.name, names.track, names.kinds
        self.records, self.items = len(timeline.trace), len(timeline.begin)
        self.times = pfslots.times(timeline) if timeline.view.args else None
        self.values = None if names.values is None else pfslots.values(timeline, names)
        self.longer = Longer(timeline)
        self.name_ids = np.arange(len(names.text), dtype=np.uint32) + np.uint32(1)
        self.track_ids = np.arange(names.tracks, dtype=np.uint32) + np.uint32(FIRST_TRACK)
        self.many = len(names.text) >= FEW_NAMES or names.tracks >= FEW_TRACKS
        name, track = self.name_ids & np.uint32(FEW_NAMES - 1), self.track_ids & np.uint32(FEW_TRACKS - 1)
        self.begins = np.uint32(BEGIN | 0x50 << 8) | padded_words(name, 2) << np.uint32(16)
        self.tracks = np.uint32(0x58) | padded_words(track, 3) << np.uint32(8)
        low = padded_words(track, 3) | np.uint32(0x800000)
        high = padded_words(self.track_ids >> np.uint32(21), 2)
        self.end_3 = np.uint32(END | 0x58 << 8) | low << np.uint32(16)
        self.end_4 = low >> np.uint32(16) | high << np.uint32(8) | np.uint32(0x22 << 24)
        timer = timeline.trace.warps.timer
        rows = np.array([track.row for track in timeline.tracks], np.int64)
        rows = np.concatenate([rows, np.zeros(names.tracks - len(rows), np.int64)])  # counters have no cycles
        clock = np.where(timer, np.uint32(TIMER_NS), np.uint32(CYCLES))[rows] if len(timer) else rows.astype(np.uint32)
        self.clock = clock << np.uint32(24) | np.uint32(0x080A22)
        self.mixed = bool(timer.any())
        self.words = 5 + 3 * (self.times is not None) + 4 * (self.values is not None) + 3 * self.many


def rows(look: Look, delta: Unsigned, end: Bools, items: npt.NDArray[np.int32]) -> Iterator[memoryview | bytes]:
    """Events of items (m,) as bytes: `delta` ns after the one before, begins or ends. Pieces in order."""
    out = _rows(look, delta, end, items)
    flat = out.reshape(-1).data
    width, done = out.shape[1], 0
    far = np.flatnonzero(delta >= _SMALL) if int(delta.max()) >= _SMALL else ()
    before = {int(row): advance(int(delta[row])) for row in far}
    more = look.longer.found(items, end)
    for row in sorted({*before, *more}):
        yield flat[done * width : row * width]
        yield before.get(row, b"")
        event = bytes(flat[row * width : (row + 1) * width])
        yield _extended(event, more[row]) if row in more else event
        done = row + 1
    yield flat[done * width :]


def _extended(row: bytes, fields: bytes) -> bytes:
    """A row as a packet with further fields of its event."""
    event = len(row) - _EVENT + len(fields)
    length = _length(event)
    packet = _length(_EVENT - 3 + len(length) + event)
    return b"".join((b"\x0a", packet, row[2 : _EVENT - 2], b"\x5a", length, row[_EVENT:], fields))


_length = lru_cache(varint)
"""Most of the longer events are as long as the one before."""


def _rows(look: Look, delta: Unsigned, end: Bools, items: npt.NDArray[np.int32]) -> Bytes:
    out = np.empty((len(delta), look.words * 4), np.uint8)
    words = out.view("<u4")
    name, track = look.name.take(items), look.track.take(items)
    kind = None if look.kinds is None else look.kinds.take(items)
    time = delta.astype(np.uint32, copy=False)
    if int(delta.max(initial=0)) >= _SMALL:
        time = np.where(delta < _SMALL, time, np.uint32(0))
    time = padded_words(time, 4)
    packet = look.words * 4 - 2
    words[:, 0] = time << np.uint32(24) | np.uint32(0x0A | packet << 8 | 0x40 << 16)
    words[:, 1] = time >> np.uint32(8) | np.uint32(0x50 << 24)
    words[:, 2] = np.uint32(SEQUENCE | 0x5A << 8 | (packet - 9) << 16 | 0x48 << 24)
    first = look.begins.take(name)
    if kind is not None and (kind > Names.SPAN_VALUE).any():
        point = (kind == Names.POINT) | (kind == Names.POINT_VALUE)
        first[point] += np.uint32(INSTANT - BEGIN)
        first[kind == Names.COUNTER] = _NAMELESS_COUNTER
    place = look.tracks.take(track)
    if look.times is None:
        words[:, 3], words[:, 4] = np.where(end, np.uint32(_NAMELESS_END), first), place
        at = 5
    else:
        words[:, 3] = np.where(end, look.end_3.take(track), first)
        words[:, 4] = np.where(end, look.end_4.take(track), place)
        _times(look, look.times, out, end, items, track)
        at = 8
    if look.values is not None:
        row = np.where(end, look.records + 1, np.minimum(items, look.records))
        pairs = look.values.take(row, axis=0)
        _put(out, at, pairs[:, 0])
        _put(out, at + 2, pairs[:, 1])
        at += 4
    if look.many:
        _again(look, out[:, at * 4 :], kind, end, name, track)
    return out


def _put(out: Bytes, at: int, pairs: U64) -> None:
    """Two words of each row, from word `at` on; one assignment where they are aligned."""
    if at % 2 == 0 and out.shape[1] % 8 == 0:
        out.view("<u8")[:, at // 2] = pairs
    else:
        out.view("<u4")[:, at] = pairs.astype(np.uint32)
        out.view("<u4")[:, at + 1] = (pairs >> np.uint64(32)).astype(np.uint32)


def _times(
    look: Look, times: U64, out: Bytes, end: Bools, items: npt.NDArray[np.int32], track: npt.NDArray[np.int32]
) -> None:
    """Words 5 to 7: of begins 22 0a 08 NAME | 18 c c c | c c c c, of ends 0b 08 NAME 29 | a double."""
    words = out.view("<u4")
    clock = look.clock.take(track) if look.mixed else look.clock[0]
    words[:, 5] = np.where(end, np.uint32(_EXACT), clock)
    found = times.take(items + end * np.int64(look.items))
    _put(out, 6, found)
    without = np.flatnonzero((found == 0) & ~end)
    if len(without):  # instants, counters, lifetimes
        words[without, 5:8] = filler(words[without, 3] & np.uint32(0x7F))[:, None]


def _again(
    look: Look, out: Bytes, kind: npt.NDArray[np.uint8] | None, end: Bools, name: Unsigned, track: npt.NDArray[np.int32]
) -> None:
    """Twelve bytes: 50 n n n n n 58 u u u u u, or 58 u u u u u and the type where there is no name."""
    nameless = end if kind is None else end | (kind == Names.COUNTER)
    tracks = look.track_ids[track]
    out[:, 0], out[:, 6] = 0x50, 0x58
    padded(out[:, 1:6], look.name_ids[name])
    padded(out[:, 7:], tracks)
    at = np.flatnonzero(nameless)
    sort = np.where(end[at], END, COUNTER).astype(np.uint8)
    out[at, 0:6] = out[at, 6:]
    for byte in (6, 8, 10):
        out[at, byte], out[at, byte + 1] = 0x48, sort
