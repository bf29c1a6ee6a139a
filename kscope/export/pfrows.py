"""Events as rows of bytes of one width, column by column.

Padding is plain protobuf: a varint may be longer than it must, and of a field that stands twice the
last one counts. What lives here: the bytes of an event. What does not: which events, in which order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .pftracks import SEQUENCE, VALUE_NAME, Names, varint

U32 = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
"""TrackEvent.Type"""

_PLAIN_BYTES = 20
_TAIL = 15  # of a wide row: a value, a counter's number, or padding


def advance(delta: int) -> bytes:
    """A packet that says nothing but the time: `delta` ns after the one before."""
    body = b"\x40" + varint(delta) + b"\x50" + varint(SEQUENCE)
    return b"\x0a" + varint(len(body)) + body


def plain_rows(delta: U32, end: npt.NDArray[np.bool_], name: U32, track: U32) -> Bytes:
    """Begins and ends of spans: delta < 2^28 ns, name < 2^14, track < 2^21. (m, 20) bytes."""
    rows = np.empty((len(delta), _PLAIN_BYTES), np.uint8)
    words = rows.view("<u4")
    packet = _PLAIN_BYTES - 2
    event = packet - 9
    time = _padded(delta, 4)
    words[:, 0] = np.uint32(0x0A | packet << 8 | 0x40 << 16) | time << np.uint32(24)
    words[:, 1] = time >> np.uint32(8) | np.uint32(0x50 << 24)
    # type, then the name; an end has no name: its type takes the four bytes
    named = np.uint32(BEGIN | 0x50 << 8) | _padded(name, 2) << np.uint32(16)
    kind = np.where(end, np.uint32(0x00808080 | END), named)
    words[:, 2] = np.uint32(SEQUENCE | 0x5A << 8 | event << 16 | 0x48 << 24)
    words[:, 3] = kind
    words[:, 4] = np.uint32(0x58) | _padded(track, 3) << np.uint32(8)
    return rows


def wide_rows(
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
    rows = np.empty((len(delta), width), np.uint8)
    rows[:, 0:3] = (0x0A, width - 2, 0x40)
    _put(rows[:, 3:12], delta)
    rows[:, 12:16] = (0x50, SEQUENCE, 0x5A, width - 16)
    sort = np.where(end, END, BEGIN).astype(np.uint8)
    sort[(kind == Names.POINT) | (kind == Names.POINT_VALUE)] = INSTANT
    counter = kind == Names.COUNTER
    sort[counter] = COUNTER
    rows[:, 16], rows[:, 17] = 0x48, sort
    rows[:, 18] = 0x50
    _put(rows[:, 19:23], name)
    nameless = end | counter
    rows[nameless, 18:23] = _filler(sort[nameless], 5)
    rows[:, 23] = 0x58
    _put(rows[:, 24:29], track)
    tail = rows[:, 29:]
    tail[...] = _filler(sort, _TAIL)
    valued = ((kind == Names.SPAN_VALUE) & ~end) | (kind == Names.POINT_VALUE)
    tail[valued] = _annotation(value[valued])
    tail[counter, :10] = _double(b"\xe1\x02", value[counter])  # double_counter_value
    tail[counter, 10:] = _filler(sort[counter], 5)
    return rows


def _padded(values: U32, width: int) -> U32:
    """Varints of `width` bytes, packed into the low bytes of words."""
    out = values & np.uint32(0x7F)
    for byte in range(1, width):
        out |= (values << np.uint32(byte)) & np.uint32(0x7F << 8 * byte)
    return np.asarray(out | np.uint32(0x00808080 & (1 << 8 * (width - 1)) - 1), np.uint32)


def _put(where: Bytes, values: npt.NDArray[np.unsignedinteger]) -> None:  # type: ignore[type-arg]  # of any width
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
