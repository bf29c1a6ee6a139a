"""Parts of a .pftrace row as words: cycles, values and counters, from numpy columns.

Fields: debug_annotation.proto and track_event.proto of Perfetto v52.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...tracedata.values import Integers
from ...util.arrays import U32, U64, Bytes, Int64
from .tracks import BEGIN, COUNTER, INSTANT, VALUE, Names

SORTS = np.array([BEGIN, BEGIN, INSTANT, INSTANT, COUNTER], np.uint32)
"""The type of an event by its code of Names."""
MOST_CYCLES = 1 << 49
"""Longer durations (3 days, only in damaged data) are shown without cycles."""
_VALUED = 0x08008D22
_FRACTION = 0x29 << 24 | VALUE << 16 | 0x08 << 8 | VALUE
_INT, _UINT = 0x20, 0x18
"""Tags of DebugAnnotation.int_value and uint_value."""
_GOES_ON = 0x00808080808080 << 8 | 0x18


def cycles(ticks: Int64) -> U64:
    """Numbers (m,) from 0 to MOST_CYCLES as two words each: 18 c c c | c c c c."""
    number = ticks.view(np.uint64)
    if int(number.max(initial=0)) >= 1 << 28:
        number = number & np.uint64((1 << 28) - 1) | number >> np.uint64(28) << np.uint64(32)
    words = _sevens(number, np.uint64(0x00003FFF00003FFF), np.uint64(0x007F007F007F007F))
    words <<= np.uint64(8)
    words |= np.uint64(_GOES_ON)
    return words


def clocks(now: U64) -> tuple[U64, U32]:
    """Numbers (m,) below 2^63 as varints of nine bytes: the first eight, and the last."""
    low, high = now & np.uint64((1 << 28) - 1), now >> np.uint64(28) & np.uint64((1 << 28) - 1)
    words = _sevens(low | high << np.uint64(32), np.uint64(0x00003FFF00003FFF), np.uint64(0x007F007F007F007F))
    words |= np.uint64(0x8080808080808080)
    return words, (now >> np.uint64(56)).astype(np.uint32)


def times(delta: U32) -> U32:
    """Numbers (m,) below 2^28 as varints of four bytes."""
    words = _sevens(delta, np.uint32(0x3FFF), np.uint32(0x007F007F))
    words |= np.uint32(0x00808080)
    return words


def _sevens(
    number: npt.NDArray[Any], fourteen: np.unsignedinteger[Any], seven: np.unsignedinteger[Any]
) -> npt.NDArray[Any]:
    """Groups of 28 bits in words of 32 as groups of 7 in bytes."""
    words: npt.NDArray[Any] = number & ~fourteen  # in place: temporaries cost more than arithmetic
    words += words
    words += words
    words |= number & fourteen
    high: npt.NDArray[Any] = words & ~seven
    high += high
    words &= seven
    words |= high
    return words


def values(kind: Bytes, numbers: npt.NDArray[np.float64]) -> U64:
    """Events as four words each, (m, 2) uint64, from their codes of Names (m,) and numbers (m,):

    22 8d 00 08 | NAME 20 v v       | v v v v | v v v v
    22 8d 00 08 | NAME 08 NAME 29   | double                  with a fraction
    e1 02 d d   | d d d d | d d type type | type type         of a counter
    """
    words = np.empty((len(kind), 4), np.uint32)
    words[...] = filler(SORTS[kind])[:, None]
    at = np.flatnonzero((kind == Names.SPAN_VALUE) | (kind == Names.POINT_VALUE))
    words[at] = _numbers(numbers[at])
    at = np.flatnonzero(kind == Names.COUNTER)
    bits = numbers[at].view(np.uint64)
    words[at, 0] = (bits & np.uint64(0xFFFF)).astype(np.uint32) << np.uint32(16) | np.uint32(0x02E1)
    words[at, 1] = (bits >> np.uint64(16)).astype(np.uint32)
    words[at, 2] = (bits >> np.uint64(48)).astype(np.uint32) | np.uint32((COUNTER << 8 | 0x48) << 16)
    return words.view(np.uint64)


def _numbers(value: npt.NDArray[np.float64]) -> U32:
    """Annotations of numbers: integers if exact, else doubles."""
    words = np.empty((len(value), 4), np.uint32)
    words[:, 0] = _VALUED
    whole = np.isfinite(value) & (np.rint(value) == value) & (np.abs(value) < 2.0**62)
    words[whole, 1:] = _integers(value[whole].astype(np.int64).view(np.uint64))
    words[~whole, 1] = _FRACTION
    words[~whole, 2:] = value[~whole].view("<u4").reshape(-1, 2)
    return words


def _integers(bits: U64, field: int = _INT) -> U32:
    """The last three words of annotations of integers (m,), by their 64 bits. field: of signed or unsigned ones."""
    low, middle = (_seven(bits >> np.uint64(shift)) for shift in (0, 28))
    last = ((bits >> np.uint64(56)) & np.uint64(0x7F) | np.uint64(0x80)).astype(np.uint32)
    sign = (bits >> np.uint64(63)).astype(np.uint32)
    words = np.empty((len(bits), 3), np.uint32)
    words[:, 0] = low << np.uint32(16) | np.uint32(field << 8 | VALUE)
    words[:, 1] = low >> np.uint32(16) | middle << np.uint32(16)
    words[:, 2] = middle >> np.uint32(16) | last << np.uint32(16) | sign << np.uint32(24)
    return words


def set_exact(pairs: U64, kind: Bytes, integers: Integers, items: Int64, rows: Int64) -> None:
    """Replace numbers that a float64 would round, except those of counters, which Perfetto keeps as doubles.

    Args:
        pairs: (m, 2), the result of values().
        kind: (m,) codes of Names.
        integers: of the trace.
        items: (m,) items.
        rows: those of `items` that are records.
    """
    rows = rows[integers.rounded[items[rows]] & (kind[rows] != Names.COUNTER)]
    words = pairs.view(np.uint32)
    for signed, field in ((True, _INT), (False, _UINT)):
        at = rows[integers.signed[items[rows]] == signed]
        words[at, 0] = _VALUED
        words[at, 1:] = _integers(integers.bits[items[at]], field)


def filler(sort: U32) -> U32:
    """A word that repeats the event's type twice."""
    return np.asarray(sort << np.uint32(8) | sort << np.uint32(24) | np.uint32(0x00480048), np.uint32)


def _seven(numbers: U64) -> U32:
    """The low 28 bits as four continued bytes of a varint."""
    low = (numbers & np.uint64((1 << 28) - 1)).astype(np.uint32)
    return np.asarray(times(low) | np.uint32(0x80000000), np.uint32)
