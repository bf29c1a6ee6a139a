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
from typing import Any

import numpy as np
import numpy.typing as npt

from .pflong import Longer, padded
from .pftracks import CYCLES, FIRST_TRACK, SEQUENCE, START_NS, TIMER_NS, VALUE, Names, block, varint
from .timeline import Timeline

Unsigned = npt.NDArray[np.unsignedinteger[Any]]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
"""TrackEvent.Type"""

_SMALL = 1 << 28
"""Times between events below this fit a row."""
MOST_CYCLES = 1 << 49
"""Longer durations (3 days) are shown without their cycles; only damaged data has them."""
FEW_NAMES, FEW_TRACKS = 1 << 14, 1 << 21
"""What two bytes of a varint can number, and three."""
_EVENT = 11  # bytes before the event itself


def advance(delta: int) -> bytes:
    """A packet that says nothing but the time: `delta` ns after the one before."""
    body = b"\x40" + varint(delta) + b"\x50" + varint(SEQUENCE)
    return b"\x0a" + varint(len(body)) + body


class Look:
    """What each item looks like: tables that rows() indexes.

    cycles: (n,) int64 or None without arguments. exact: (n + w,) float64. longer: see pflong.py.
    """

    def __init__(self, timeline: Timeline, names: Names) -> None:
        self.name, self.track, self.kinds, self.values = names.name, names.track, names.kinds, names.values
        self.records = len(timeline.trace)
        cycles = timeline.trace.dur_cycles if self.records else np.zeros(1, np.int64)  # one, to take from
        self.cycles = cycles if timeline.view.args else None
        self.exact = timeline.exact
        self.longer = Longer(timeline)
        self.name_ids = np.arange(len(names.text), dtype=np.uint32) + np.uint32(1)
        self.track_ids = np.arange(names.tracks, dtype=np.uint32) + np.uint32(FIRST_TRACK)
        self.many = len(names.text) >= FEW_NAMES or names.tracks >= FEW_TRACKS
        few = np.uint32(FEW_NAMES - 1), np.uint32(FEW_TRACKS - 1)
        self.begins = np.uint32(BEGIN | 0x50 << 8) | _padded(self.name_ids & few[0], 2) << np.uint32(16)
        self.tracks = np.uint32(0x58) | _padded(self.track_ids & few[1], 3) << np.uint32(8)
        low = _padded(self.track_ids & few[1], 3) | np.uint32(0x800000)
        high = _padded(self.track_ids >> np.uint32(21), 2)
        self.end_3 = np.uint32(END | 0x58 << 8) | low << np.uint32(16)
        self.end_4 = low >> np.uint32(16) | high << np.uint32(8) | np.uint32(0x22 << 24)
        timer = timeline.trace.warps.timer
        clock = np.where(timer, TIMER_NS, CYCLES).astype(np.uint32)
        rows = np.array([track.row for track in timeline.tracks[len(timer) :]], np.int64)
        self.clock = np.concatenate([clock, clock[rows]]) << np.uint32(24) | np.uint32(0x080A22)
        self.words = 5 + 3 * (self.cycles is not None) + 4 * (self.values is not None) + 3 * self.many


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
    body = row[2 : _EVENT - 2] + block(11, row[_EVENT:] + fields)
    return b"\x0a" + varint(len(body)) + body


def _rows(look: Look, delta: Unsigned, end: Bools, items: npt.NDArray[np.int32]) -> Bytes:
    out = np.empty((len(delta), look.words * 4), np.uint8)
    words = out.view("<u4")
    name, track = look.name.take(items), look.track.take(items)
    kind = None if look.kinds is None else look.kinds[items]
    time = delta.astype(np.uint32, copy=False)
    if len(delta) and int(delta.max()) >= _SMALL:
        time = np.where(delta < _SMALL, time, np.uint32(0))
    time = _padded(time, 4)
    packet = look.words * 4 - 2
    words[:, 0] = time << np.uint32(24) | np.uint32(0x0A | packet << 8 | 0x40 << 16)
    words[:, 1] = time >> np.uint32(8) | np.uint32(0x50 << 24)
    words[:, 2] = np.uint32(SEQUENCE | 0x5A << 8 | (packet - 9) << 16 | 0x48 << 24)
    first = look.begins.take(name)
    if kind is not None and (kind > Names.SPAN_VALUE).any():
        point = (kind == Names.POINT) | (kind == Names.POINT_VALUE)
        first[point] += np.uint32(INSTANT - BEGIN)
        first[kind == Names.COUNTER] = 0x00808080 | COUNTER
    place = look.tracks.take(track)
    if look.cycles is None:
        words[:, 3], words[:, 4] = np.where(end, np.uint32(0x00808080 | END), first), place
        at = 5
    else:
        _ends(look, words, end, items, track)
        _begins(look, words, np.flatnonzero(~end), items, track, first, place, kind)
        at = 8
    if kind is not None and look.values is not None:
        _values(look.values, words[:, at : at + 4], kind, end, items)
        at += 4
    if look.many:
        _again(look, out[:, at * 4 :], kind, end, name, track)
    return out


def _ends(look: Look, words: U32, end: Bools, items: npt.NDArray[np.int32], track: npt.NDArray[np.int32]) -> None:
    """Words 3 to 7 of ends: 02 58 u u | u u u 22 | 0b 08 NAME 29 | a double"""
    assert look.exact is not None
    at = np.flatnonzero(end)
    where = track[at]
    words[at, 3], words[at, 4] = look.end_3.take(where), look.end_4.take(where)
    words[at, 5] = 0x29 << 24 | START_NS << 16 | 0x080B
    words[at, 6:8] = look.exact.take(items[at]).view("<u4").reshape(-1, 2)


def _begins(
    look: Look, words: U32, at: Int64, items: npt.NDArray[np.int32], track: npt.NDArray[np.int32],
    first: U32, place: U32, kind: npt.NDArray[np.uint8] | None,
) -> None:  # fmt: skip
    """Words 3 to 7 of the others; the last three are 22 0a 08 NAME | 18 c c c | c c c c"""
    assert look.cycles is not None
    words[at, 3], words[at, 4] = first[at], place[at]
    which = items[at]
    cycles = look.cycles.take(which, mode="clip")
    low, high = (cycles & (1 << 21) - 1).astype(np.uint32), (cycles >> 21).astype(np.uint32)
    words[at, 5] = look.clock.take(np.minimum(track[at], len(look.clock) - 1))
    words[at, 6] = (_padded(low, 3) | np.uint32(0x800000)) << np.uint32(8) | np.uint32(0x18)
    words[at, 7] = _padded(high & np.uint32(_SMALL - 1), 4)
    without = (which >= look.records) | (cycles < 0) | (cycles >= MOST_CYCLES)
    if kind is not None:
        without |= kind[at] > Names.SPAN_VALUE
    if without.any():
        words[at[without], 5:8] = _filler(words[at[without], 3] & np.uint32(0x7F))[:, None]


def _values(values: Float, words: U32, kind: npt.NDArray[np.uint8], end: Bools, items: npt.NDArray[np.int32]) -> None:
    """Four words; of a number    22 8d 00 08 | NAME 20 v v   | v v v v | v v v v
    or, with a fraction           22 8d 00 08 | NAME 08 NAME 29 | double
    and of a counter              e1 02 d d   | d d d d       | d d type type | type type."""
    valued = ((kind == Names.SPAN_VALUE) & ~end) | (kind == Names.POINT_VALUE)
    counter = kind == Names.COUNTER
    point = (kind == Names.POINT) | (kind == Names.POINT_VALUE)
    sort = np.where(counter, COUNTER, np.where(point, INSTANT, np.where(end, END, BEGIN))).astype(np.uint32)
    words[...] = _filler(sort)[:, None]
    at = np.flatnonzero(valued)
    value = values[items[at]]
    whole = np.isfinite(value) & (np.rint(value) == value) & (np.abs(value) < 2.0**62)
    words[at, 0] = 0x08008D22
    if whole.any():
        numbers = value[whole].astype(np.int64).view(np.uint64)
        low, middle = (_seven(numbers >> np.uint64(shift)) for shift in (0, 28))
        last = ((numbers >> np.uint64(56)) & np.uint64(0x7F) | np.uint64(0x80)).astype(np.uint32)
        sign = (numbers >> np.uint64(63)).astype(np.uint32)
        words[at[whole], 1] = low << np.uint32(16) | np.uint32(0x2000 | VALUE)
        words[at[whole], 2] = low >> np.uint32(16) | middle << np.uint32(16)
        words[at[whole], 3] = middle >> np.uint32(16) | last << np.uint32(16) | sign << np.uint32(24)
    words[at[~whole], 1] = 0x29 << 24 | VALUE << 16 | 0x08 << 8 | VALUE
    words[at[~whole], 2:] = value[~whole].view("<u4").reshape(-1, 2)
    at = np.flatnonzero(counter)
    number = values[items[at]].view(np.uint64)
    words[at, 0] = (number & np.uint64(0xFFFF)).astype(np.uint32) << np.uint32(16) | np.uint32(0x02E1)
    words[at, 1] = (number >> np.uint64(16)).astype(np.uint32)
    words[at, 2] = (number >> np.uint64(48)).astype(np.uint32) | np.uint32((COUNTER << 8 | 0x48) << 16)


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


def _filler(sort: U32) -> U32:
    """A word that says the event's type twice."""
    return np.asarray(sort << np.uint32(8) | sort << np.uint32(24) | np.uint32(0x00480048), np.uint32)


def _seven(numbers: U64) -> U32:
    """The low 28 bits as four bytes of a varint that goes on."""
    low = (numbers & np.uint64(_SMALL - 1)).astype(np.uint32)
    return np.asarray(_padded(low, 4) | np.uint32(0x80000000), np.uint32)


def _padded(values: U32, width: int) -> U32:
    """Varints of `width` bytes, packed into the low bytes of words."""
    out: U32 = values & np.uint32(0x7F)
    for byte in range(1, width):
        out |= (values << np.uint32(byte)) & np.uint32(0x7F << 8 * byte)
    out |= np.uint32(0x00808080 & (1 << 8 * (width - 1)) - 1)
    return out
