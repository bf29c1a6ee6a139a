"""What events have beside their time, as words: once for every item, before events are sorted.

What lives here: names and tracks, cycles, values and counters. What does not: rows, which these words
are taken into (pfrows.py). Fields: debug_annotation.proto and track_event.proto of Perfetto v52.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..layout import Kind
from ..parallel import chunks, each
from .pftracks import VALUE, Names
from .timeline import Timeline

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
Int64 = npt.NDArray[np.int64]

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
"""TrackEvent.Type"""
MOST_CYCLES = 1 << 49
"""Longer durations (3 days) are shown without their cycles; only damaged data has them."""
_VALUED = 0x08008D22
_FRACTION = 0x29 << 24 | VALUE << 16 | 0x08 << 8 | VALUE


def heads(names: Names, begins: U32, tracks: U32) -> U64:
    """(n + w,) words 3 and 4 of begins, instants and counters, from those of each name and each track."""
    out = np.empty(len(names.name), np.uint64)

    def work(part: slice) -> None:
        first = begins.take(names.name[part])
        if names.kinds is not None:
            kind = names.kinds[part]
            first[(kind == Names.POINT) | (kind == Names.POINT_VALUE)] += np.uint32(INSTANT - BEGIN)
            first[kind == Names.COUNTER] = 0x00808080 | COUNTER
        out[part] = tracks.take(names.track[part]).astype(np.uint64) << np.uint64(32) | first

    each(work, chunks(len(out)))
    return out


def cycles(timeline: Timeline) -> U64:
    """(n + w,) two words each, of begins: 18 c c c | c c c c, or 0 without cycles."""
    trace = timeline.trace
    out = np.zeros(len(timeline.begin), np.uint64)
    spans = np.array([region.kind in (Kind.SPAN, Kind.SPAN_VALUE) for region in trace.regions])

    def work(part: slice) -> None:
        ticks = trace.dur_cycles[part]
        low, high = (ticks & (1 << 21) - 1).astype(np.uint32), (ticks >> 21).astype(np.uint32)
        low = (padded_words(low, 3) | np.uint32(0x800000)) << np.uint32(8) | np.uint32(0x18)
        high = padded_words(high & np.uint32((1 << 28) - 1), 4)
        known = spans[trace.region[part]] & (ticks >= 0) & (ticks < MOST_CYCLES)
        out[part] = np.where(known, high.astype(np.uint64) << np.uint64(32) | low, np.uint64(0))

    each(work, chunks(len(trace)))
    return out


def values(timeline: Timeline, names: Names) -> U64:
    """(n + 2, 2) four words each, of begins without a value and of ends in the last two rows; of a number

    22 8d 00 08 | NAME 20 v v       | v v v v | v v v v
    22 8d 00 08 | NAME 08 NAME 29   | double                  with a fraction
    e1 02 d d   | d d d d | d d type type | type type         of a counter
    """
    count = len(timeline.trace)
    assert names.kinds is not None and names.values is not None
    kinds, numbers = names.kinds, names.values
    out = np.empty((count + 2, 4), np.uint32)
    out[count:] = filler(np.array([BEGIN, END], np.uint32))[:, None]
    sorts = np.array([BEGIN, BEGIN, INSTANT, INSTANT, COUNTER], np.uint32)  # by code of Names

    def work(part: slice) -> None:
        kind, words = kinds[part], out[part]
        words[...] = filler(sorts[kind])[:, None]
        at = np.flatnonzero((kind == Names.SPAN_VALUE) | (kind == Names.POINT_VALUE))
        words[at] = _numbers(numbers[part][at])
        at = np.flatnonzero(kind == Names.COUNTER)
        bits = numbers[part][at].view(np.uint64)
        words[at, 0] = (bits & np.uint64(0xFFFF)).astype(np.uint32) << np.uint32(16) | np.uint32(0x02E1)
        words[at, 1] = (bits >> np.uint64(16)).astype(np.uint32)
        words[at, 2] = (bits >> np.uint64(48)).astype(np.uint32) | np.uint32((COUNTER << 8 | 0x48) << 16)

    each(work, chunks(count))
    return out.view(np.uint64)


def _numbers(value: npt.NDArray[np.float64]) -> U32:
    """Annotations of numbers: whole ones as integers, others as doubles."""
    words = np.empty((len(value), 4), np.uint32)
    words[:, 0] = _VALUED
    whole = np.isfinite(value) & (np.rint(value) == value) & (np.abs(value) < 2.0**62)
    bits = value[whole].astype(np.int64).view(np.uint64)
    low, middle = (_seven(bits >> np.uint64(shift)) for shift in (0, 28))
    last = ((bits >> np.uint64(56)) & np.uint64(0x7F) | np.uint64(0x80)).astype(np.uint32)
    sign = (bits >> np.uint64(63)).astype(np.uint32)
    words[whole, 1] = low << np.uint32(16) | np.uint32(0x2000 | VALUE)
    words[whole, 2] = low >> np.uint32(16) | middle << np.uint32(16)
    words[whole, 3] = middle >> np.uint32(16) | last << np.uint32(16) | sign << np.uint32(24)
    words[~whole, 1] = _FRACTION
    words[~whole, 2:] = value[~whole].view("<u4").reshape(-1, 2)
    return words


def filler(sort: U32) -> U32:
    """A word that says the event's type twice."""
    return np.asarray(sort << np.uint32(8) | sort << np.uint32(24) | np.uint32(0x00480048), np.uint32)


def _seven(numbers: U64) -> U32:
    """The low 28 bits as four bytes of a varint that goes on."""
    low = (numbers & np.uint64((1 << 28) - 1)).astype(np.uint32)
    return np.asarray(padded_words(low, 4) | np.uint32(0x80000000), np.uint32)


def padded_words(values: U32, width: int) -> U32:
    """Varints of `width` bytes, packed into the low bytes of words."""
    out: U32 = values & np.uint32(0x7F)
    for byte in range(1, width):
        out |= (values << np.uint32(byte)) & np.uint32(0x7F << 8 * byte)
    out |= np.uint32(0x00808080 & (1 << 8 * (width - 1)) - 1)
    return out
