"""Events as rows of bytes of one width, column by column.

Padding is plain protobuf: a varint may be longer than it must, and of a field that stands twice the
last one counts. What lives here: the bytes of an event. What does not: which events, in which order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .pftracks import FIRST_TRACK, SEQUENCE, VALUE_NAME, Names, varint

Unsigned = npt.NDArray[np.unsignedinteger[Any]]
U32 = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
"""TrackEvent.Type"""

SMALL = 1 << 28
"""Deltas below this fit the rows of plain spans."""
_PLAIN_BYTES = 20
_TAIL = 15  # of a wide row: a value, a counter's number, or padding


def set_delta(row: Bytes, delta: int) -> None:
    """Write the time of one row (width,), less than SMALL ns after the row before it."""
    last = 7 if len(row) == _PLAIN_BYTES else 12
    _put(row[None, 3:last], np.array([delta], np.uint64))


def advance(delta: int) -> bytes:
    """A packet that says nothing but the time: `delta` ns after the one before."""
    body = b"\x40" + varint(delta) + b"\x50" + varint(SEQUENCE)
    return b"\x0a" + varint(len(body)) + body


class Look:
    """What each item looks like: tables that rows() indexes.

    name, track: (n + w,) indices into the tables of names and tracks. kinds, values: see Names.
    """

    def __init__(self, names: Names) -> None:
        self.name, self.track, self.kinds, self.values = names.name, names.track, names.kinds, names.values
        self.small = len(names.text) < 1 << 14 and names.tracks < 1 << 21
        self.name_ids = np.arange(len(names.text), dtype=np.uint32) + np.uint32(1)
        self.track_ids = np.arange(names.tracks, dtype=np.uint32) + np.uint32(FIRST_TRACK)
        begin = np.uint32(BEGIN | 0x50 << 8)
        self.begins = begin | _padded(self.name_ids, 2) << np.uint32(16)
        self.tracks = np.uint32(0x58) | _padded(self.track_ids, 3) << np.uint32(8)


def rows(look: Look, delta: Unsigned, end: npt.NDArray[np.bool_], items: npt.NDArray[np.int32]) -> Bytes:
    """Events of items (m,) as rows of bytes: `delta` ns after the one before, begins or ends."""
    name, track = look.name.take(items), look.track.take(items)
    kind = None if look.kinds is None else look.kinds[items]
    if look.small and int(delta.max()) < SMALL and (kind is None or not kind.any()):
        return _plain(delta.astype(np.uint32, copy=False), end, look.begins.take(name), look.tracks.take(track))
    if kind is None:
        kind = np.zeros(len(items), np.uint8)
    value = np.zeros(len(items))
    if look.values is not None:
        special = kind != Names.PLAIN
        value[special] = look.values[items[special]]
    return _wide(delta.astype(np.uint64), end, look.name_ids[name], look.track_ids[track], kind, value)


def _plain(delta: U32, end: npt.NDArray[np.bool_], begins: U32, tracks: U32) -> Bytes:
    """Begins and ends of spans with small deltas, names and tracks:

    0a LEN  40 t t t t  50 01  5a LEN  48 type+name (4)  58 u u u
    """
    out = np.empty((len(delta), _PLAIN_BYTES), np.uint8)
    words = out.view("<u4")
    packet = _PLAIN_BYTES - 2
    time = _padded(delta, 4)
    words[:, 0] = time << np.uint32(24) | np.uint32(0x0A | packet << 8 | 0x40 << 16)
    words[:, 1] = time >> np.uint32(8) | np.uint32(0x50 << 24)
    words[:, 2] = np.uint32(SEQUENCE | 0x5A << 8 | (packet - 9) << 16 | 0x48 << 24)
    # type, then the name; an end has no name: its type takes the four bytes
    words[:, 3] = np.where(end, np.uint32(0x00808080 | END), begins)
    words[:, 4] = tracks
    return out


def _wide(
    delta: npt.NDArray[np.uint64],
    end: npt.NDArray[np.bool_],
    name: U32,
    track: U32,
    kind: npt.NDArray[np.uint8],
    value: npt.NDArray[np.float64],
) -> Bytes:
    """Any events, 46 bytes each: kind is a code of Names, value the number where the kind has one.

    0a LEN  40 t*9  50 01  5a LEN  48 T  50 n*4 | 48 T 48 T0  58 u*5  value (15)
    """
    width = 2 + 10 + 2 + 2 + 2 + 5 + 6 + _TAIL
    out = np.empty((len(delta), width), np.uint8)
    out[:, 0:3] = (0x0A, width - 2, 0x40)
    _put(out[:, 3:12], delta)
    out[:, 12:16] = (0x50, SEQUENCE, 0x5A, width - 16)
    sort = np.where(end, END, BEGIN).astype(np.uint8)
    sort[(kind == Names.POINT) | (kind == Names.POINT_VALUE)] = INSTANT
    counter = kind == Names.COUNTER
    sort[counter] = COUNTER
    out[:, 16], out[:, 17] = 0x48, sort
    out[:, 18] = 0x50
    _put(out[:, 19:23], name)
    nameless = end | counter
    out[nameless, 18:23] = _filler(sort[nameless], 5)
    out[:, 23] = 0x58
    _put(out[:, 24:29], track)
    tail = out[:, 29:]
    tail[...] = _filler(sort, _TAIL)
    valued = ((kind == Names.SPAN_VALUE) & ~end) | (kind == Names.POINT_VALUE)
    tail[valued] = _annotation(value[valued])
    tail[counter, :10] = _double(b"\xe1\x02", value[counter])  # double_counter_value
    tail[counter, 10:] = _filler(sort[counter], 5)
    return out


def _padded(values: U32, width: int) -> U32:
    """Varints of `width` bytes, packed into the low bytes of words."""
    out = values & np.uint32(0x7F)
    for byte in range(1, width):
        out |= (values << np.uint32(byte)) & np.uint32(0x7F << 8 * byte)
    return np.asarray(out | np.uint32(0x00808080 & (1 << 8 * (width - 1)) - 1), np.uint32)


def _put(where: Bytes, values: npt.NDArray[np.unsignedinteger]) -> None:
    """Padded varints as wide as the given columns."""
    last = where.shape[1] - 1
    rest = values.astype(np.uint64)
    for byte in range(last + 1):
        where[:, byte] = (rest & np.uint64(0x7F)).astype(np.uint8) | (0x80 if byte < last else 0)
        rest >>= np.uint64(7)


def _filler(sort: Bytes, width: int) -> Bytes:
    """The event's type again and again, `width` odd and at least 3."""
    out = np.empty((len(sort), width), np.uint8)
    out[:, 0:-1:2] = 0x48
    out[:, 1:-1:2] = sort[:, None]
    out[:, -2] |= 0x80
    out[:, -1] = 0
    return out


def _double(tag: bytes, values: npt.NDArray[np.float64]) -> Bytes:
    out = np.empty((len(values), len(tag) + 8), np.uint8)
    out[:, : len(tag)] = np.frombuffer(tag, np.uint8)
    out[:, len(tag) :] = values.astype("<f8").view(np.uint8).reshape(-1, 8)
    return out


def _annotation(values: npt.NDArray[np.float64]) -> Bytes:
    """debug_annotations {name_iid, int_value or double_value}, 15 bytes: whole numbers as such."""
    out = np.empty((len(values), _TAIL), np.uint8)
    whole = np.isfinite(values) & (np.rint(values) == values) & (np.abs(values) < 2.0**62)
    out[whole, :5] = (0x22, 13, 0x08, VALUE_NAME, 0x20)
    numbers = values[whole].astype(np.int64).view(np.uint64)
    digits = np.empty((len(numbers), 10), np.uint8)
    _put(digits[:, :9], numbers)
    digits[:, 8] |= 0x80
    digits[:, 9] = numbers >> np.uint64(63)
    out[whole, 5:] = digits
    out[~whole, :6] = (0x22, 13, 0x08, VALUE_NAME | 0x80, 0x80, 0)
    out[~whole, 6:] = _double(b"\x29", values[~whole])
    return out
