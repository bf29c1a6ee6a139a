"""Extends 32-bit clocks to 64 bits for warps that ran for 2^32 ticks or more, or never finished.

    end    ends only grow (ring order is order of end), so between the anchors a low word has a least and a
           greatest possible value; where these agree it is exact.
    start  the low word before the end, unless a start 2^32 ticks earlier is possible as well: not before
           the warp's own start, and not before the same region's previous end.

Ambiguous records get the duration UNKNOWN, so that a long span is never shown as short.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..capture.layout import MORE, Kind
from ..tracedata.data import UNKNOWN
from ..util.arrays import Int64

_TURN = 1 << 32
_LOW = _TURN - 1
_POINT = np.array([kind & 7 in (Kind.INSTANT, Kind.INSTANT_VALUE, Kind.COUNTER) for kind in range(16)])


@dataclass(frozen=True)
class Unwrapped:
    """start (n,), duration (n,), int64 ticks; duration UNKNOWN where ambiguous, and start is then the end."""

    start: Int64
    duration: Int64


def ring_start(words: npt.NDArray[np.uint32]) -> int:
    """Index of the oldest record in a full ring (n, 4) whose count is not known: where ends step back."""
    end = words[:, 2]
    back = (end - np.roll(end, 1)).view(np.int32) < 0
    steps = np.flatnonzero(back)
    return int(steps[0]) if len(steps) else 0


def unwrap(words: npt.NDArray[np.uint32], first: int, last: int | None) -> Unwrapped:
    """Clocks of one slab's records.

    Args:
        words: (n, 4) uint32, in order of end.
        first: the slab's start, 64-bit ticks.
        last: its end; None if it never finished: then it is assumed to end within 2^32 ticks of the last known time.
    """
    start_low, ids, end_low = (words[:, column].astype(np.int64) for column in range(3))
    kind = words[:, 1] & 15
    steps = np.diff(end_low, prepend=first & _LOW) & _LOW
    climb = np.cumsum(steps)  # of the ends, if no step is 2^32 or more
    limit = first
    if last is not None and len(climb):
        limit = max(first, last - ((last - int(end_low[-1])) & _LOW) - int(climb[-1]))
    end = climb + first
    duration = (end_low - start_low) & _LOW
    previous = _previous_end((ids >> 4) + ((kind == MORE).astype(np.int64) << 28), end, first)
    # A start before the same region's previous end belongs to a name nested in itself: no bound from there.
    bound = np.where(end - duration >= previous, previous, first)
    unsure = (limit != first) | (end - duration - _TURN >= bound)
    unsure &= ~_POINT[kind] | (limit != first)
    duration[_POINT[kind]] = 0
    return Unwrapped(np.where(unsure, end, end - duration), np.where(unsure, UNKNOWN, duration))


def _previous_end(name: Int64, end: Int64, first: int) -> Int64:
    """For each record the end of the record before it with the same name, else `first`."""
    order = np.argsort(name, kind="stable")
    same = np.zeros(len(name), bool)
    same[1:] = name[order][1:] == name[order][:-1]
    before = np.full(len(name), first, np.int64)
    before[order[same]] = end[order[np.flatnonzero(same) - 1]]
    return before
