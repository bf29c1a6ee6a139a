"""Events as rows of bytes of one width, column by column.

    word  0  0a LEN 40 t    a packet, and the time since the one before: four bytes of a varint
          1  t t t 50
          2  01 5a LEN 48   the packet sequence; an event, and its type
          3  type 50 n n    a begin: its name. An end has none, its type takes the four bytes
          4  58 u u u       its track
    then, each where the file has it at all:
      3 words  cycles of a begin: 22 0a 08 NAME | 18 c c c | c c c c. Of an end, words 3 to 7 are its exact
               begin in ns, then the track: 02 22 0b 08 | NAME 29 d d | d d d d | d d 48 02 | 58 u u u
      4 words  the value of a begin or an instant, the number of a counter
      3 words  name and track again, five bytes each, where there are too many for the places above

Padding is plain protobuf: a varint may be longer than it must, and of a field that stands twice the
last one counts, so that places without use repeat the type. Few events are longer than their row
(lifetimes, which have more arguments; ends of arrows): these are made one by one. What lives here: the
bytes of an event. What does not: which events, in which order (pftrace.py); words that are made once per
item (pfslots.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from . import pfslots
from .pflong import Longer, padded
from .pfslots import BEGIN, COUNTER, END, filler, padded_words
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
_NAMELESS_END = 0x00808080 | END
_EXACT_3, _EXACT_4 = 0x080B2200 | END, 0x2900 | START_NS
_CYCLES, _TIMER = CYCLES << 24 | 0x080A22, TIMER_NS << 24 | 0x080A22


def advance(delta: int) -> bytes:
    """A packet that says nothing but the time: `delta` ns after the one before."""
    body = b"\x40" + varint(delta) + b"\x50" + varint(SEQUENCE)
    return b"\x0a" + varint(len(body)) + body


class Look:
    """What each item looks like: tables that rows() indexes.

    heads, cycles, values: words of pfslots.py, or None where the file has none. exact: bits of begins in ns.
    longer: see pflong.py.
    """

    def __init__(self, timeline: Timeline, names: Names) -> None:
        self.name, self.track, self.kinds = names.name, names.track, names.kinds
        self.records = len(timeline.trace)
        self.name_ids = np.arange(len(names.text), dtype=np.uint32) + np.uint32(1)
        self.track_ids = np.arange(names.tracks, dtype=np.uint32) + np.uint32(FIRST_TRACK)
        self.many = len(names.text) >= FEW_NAMES or names.tracks >= FEW_TRACKS
        name, track = self.name_ids & np.uint32(FEW_NAMES - 1), self.track_ids & np.uint32(FEW_TRACKS - 1)
        begins = np.uint32(BEGIN | 0x50 << 8) | padded_words(name, 2) << np.uint32(16)
        self.heads = pfslots.heads(names, begins, np.uint32(0x58) | padded_words(track, 3) << np.uint32(8))
        self.cycles = pfslots.cycles(timeline) if timeline.view.args else None
        self.exact = None if timeline.exact is None else timeline.exact.view(np.uint64)
        self.values = None if names.values is None else pfslots.values(timeline, names)
        self.longer = Longer(timeline)
        timer = timeline.trace.warps.timer
        self.clocks: U32 | None = None  # of tracks, where not all are SM cycles
        if timer.any():
            rows = np.array([track.row for track in timeline.tracks], np.int64)
            rows = np.concatenate([rows, np.zeros(names.tracks - len(rows), np.int64)])  # of counters: not looked at
            self.clocks = np.where(timer[rows], np.uint32(_TIMER), np.uint32(_CYCLES))
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
    event = len(row) - _EVENT + len(fields)
    length = _length(event)
    packet = _length(_EVENT - 3 + len(length) + event)
    return b"".join((b"\x0a", packet, row[2 : _EVENT - 2], b"\x5a", length, row[_EVENT:], fields))


_length = lru_cache(varint)
"""Most of the longer events are as long as the one before."""


def _rows(look: Look, delta: Unsigned, end: Bools, items: npt.NDArray[np.int32]) -> Bytes:
    out = np.empty((len(delta), look.words * 4), np.uint8)
    words = out.view("<u4")
    time = delta.astype(np.uint32, copy=False)
    if int(delta.max(initial=0)) >= _SMALL:
        time = np.where(delta < _SMALL, time, np.uint32(0))
    time = padded_words(time, 4)
    packet = look.words * 4 - 2
    words[:, 0] = time << np.uint32(24) | np.uint32(0x0A | packet << 8 | 0x40 << 16)
    words[:, 1] = time >> np.uint32(8) | np.uint32(0x50 << 24)
    words[:, 2] = np.uint32(SEQUENCE | 0x5A << 8 | (packet - 9) << 16 | 0x48 << 24)
    index = items.astype(np.intp)
    head = look.heads.take(index)
    first, place = head.astype(np.uint32), (head >> np.uint64(32)).astype(np.uint32)
    if look.cycles is None or look.exact is None:
        words[:, 3], words[:, 4] = np.where(end, np.uint32(_NAMELESS_END), first), place
        at = 5
    else:
        found = np.where(end, look.exact.take(index), look.cycles.take(index))
        _times(look, found, words, end, index, first, place)
        at = 8
    if look.values is not None:
        pairs = look.values.take(np.where(end, look.records + 1, np.minimum(index, look.records)), axis=0)
        _put(out, at, pairs[:, 0])
        _put(out, at + 2, pairs[:, 1])
        at += 4
    if look.many:
        kind = None if look.kinds is None else look.kinds.take(index)
        _again(look, out[:, at * 4 :], kind, end, look.name.take(index), look.track.take(index))
    return out


def _put(out: Bytes, at: int, pairs: U64) -> None:
    """Two words of each row, from word `at` on; one assignment where they are aligned."""
    if at % 2 == 0 and out.shape[1] % 8 == 0:
        out.view("<u8")[:, at // 2] = pairs
    else:
        out.view("<u4")[:, at] = pairs.astype(np.uint32)
        out.view("<u4")[:, at + 1] = (pairs >> np.uint64(32)).astype(np.uint32)


def _times(look: Look, found: U64, words: U32, end: Bools, index: npt.NDArray[np.intp], first: U32, place: U32) -> None:
    """Words 3 to 7; found: what the last of them hold."""
    low, high = found.astype(np.uint32), (found >> np.uint64(32)).astype(np.uint32)
    words[:, 3] = np.where(end, np.uint32(_EXACT_3), first)
    words[:, 4] = np.where(end, low << np.uint32(16) | np.uint32(_EXACT_4), place)
    clock = np.uint32(_CYCLES) if look.clocks is None else look.clocks.take(look.track.take(index))
    words[:, 5] = np.where(end, low >> np.uint32(16) | high << np.uint32(16), clock)
    words[:, 6] = np.where(end, high >> np.uint32(16) | np.uint32((END << 8 | 0x48) << 16), low)
    words[:, 7] = np.where(end, place, high)
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
