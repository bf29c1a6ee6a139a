"""Resumes the count of arrivals at a barrier after missing records, with the counts that no wait contradicts."""

from __future__ import annotations

import numpy as np

from . import events as be
from .events import Events

_DELAY = 4096
"""The most ticks from the record of an arrival until the barrier counts it."""
_MOST_WAYS = 1024
Way = tuple[int, int]
"""(arrivals of the first phase that are missing, parity of the first phase)."""


def ways_to_count(found: Events, needed: int) -> list[Way]:
    """The counts that no wait contradicts.

    Two numbers are unknown: the missing arrivals of the current phase, and whether the number of missing phases is
    even. Each choice of both assigns a phase to every wait. A wait that began after the next phase had completed
    contradicts the choice, because by then the parity had changed.

    Args:
        found: the operations of one barrier, in order of time, without gaps.
        needed: arrivals of a phase.
    """
    arrives = np.isin(found.operation, (be.ARRIVE, be.EXPECT, be.FOLLOW))
    waits = np.flatnonzero(found.operation == be.WAIT)
    steps = np.gcd.reduce(np.append(found.weight[arrives], needed))
    if not arrives.any() or not len(waits) or 2 * needed // steps > _MOST_WAYS:
        return []
    total = np.cumsum(found.weight * arrives)
    # bytes may land later than any operation: only waits show that such a phase is over
    prompt = not np.isin(found.operation, (be.EXPECT, be.EXPECT_TX, be.COPY, be.FOLLOW)).any()
    ways = []
    for missing in range(0, needed, int(steps)):
        done = (total + missing) // needed
        reached = np.searchsorted(done, np.arange(1, int(done[-1]) + 1))
        for parity in (0, 1):
            phase = np.where((done[waits] - 1) % 2 == found.parity[waits] ^ parity, done[waits] - 1, done[waits] - 2)
            if not _contradicts(found, waits, phase, reached, prompt):
                ways.append((missing, parity))
    return ways


def _contradicts(found: Events, waits: np.ndarray, phase: np.ndarray, reached: np.ndarray, prompt: bool) -> bool:
    """True if a wait began after the phase following its own was over."""
    over = np.full(len(reached) + 2, np.iinfo(np.int64).max)
    known = phase >= 0
    np.minimum.at(over, phase[known], found.end[waits][known])
    if prompt:
        over[: len(reached)] = np.minimum(over[: len(reached)], found.start[reached] + _DELAY)
    following = phase + 1
    return bool((found.start[waits] > over[np.maximum(following, 0)])[following >= 0].any())
