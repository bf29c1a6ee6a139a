"""Predicts how much of a pool will be claimed by launches that the device has not begun."""

from __future__ import annotations

import threading
from collections.abc import Hashable

import numpy as np

from .accounting import MASK
from .slab_search import U32s

SETTLED_S = 0.002
"""If nothing was claimed for this long, all earlier launches have begun, or wait for something else."""
_UNKNOWN, _MOST = 1 / 32, 1 / 2
"""Claims that are assumed for a launch of an unknown kernel, and the most that may be claimed or expected at a time, as
shares of the pool.
"""
_LITTLE = 1 / 8
_MUCH = 7 / 8
"""Least share that is freed while nothing is launched: smaller rests stay in the pool."""
_FORGET = 0.9
"""An expectation that was too high falls at most to this share of it at a time: launches of one kernel differ."""


class Forecast:
    """One device's launches since the last settled moment, and its kernels' claims.

    Launches are queued faster than they run: hundreds may wait that will claim more than the pool holds, while all of
    it is free. The claims of a kernel's launch are learned: between two moments at which the device had begun
    everything, the claims belong to the launches between them.

    Args:
        heads: (stripes,) every stripe's count of claimed units.
        size: units in the pool.
        now: time.monotonic(), s.

    Attributes:
        changed: time of the last launch or claim, s.
        freed: units that were freed up to the last reading, modulo 2^32, from an arbitrary start.
    """

    def __init__(self, heads: U32s, size: int, now: float) -> None:
        self._heads, self._size = heads.copy(), size
        self._each: dict[Hashable, float] = {}  # units that a launch of a kernel claims
        self._counts: dict[Hashable, int] = {}  # launches of each kernel
        self._expected = 0.0  # of those launches
        self._seen = self._occupied = 0  # claimed since, and claimed and not freed
        self.changed, self.freed = now, 0
        self._lock = threading.Lock()

    def fits(self, kernel: Hashable) -> bool:
        """True if one more launch of the kernel finds room after all earlier ones. A launch that claims much of the
        pool must be the only one, and finds it nearly empty.
        """
        with self._lock:
            return self._fits(self._claims(kernel))

    def admits(self, kernel: Hashable, now: float) -> bool:
        """Count a launch of the kernel if it fits; True if it does."""
        with self._lock:  # for each launch: with few calls
            claims = self._each.get(kernel)
            if claims is None:
                claims = self._size * _UNKNOWN
            expected = self._expected + claims
            if self._occupied + expected - self._seen > self._size * _MOST and not self._fits(claims):
                return False
            self._counts[kernel] = self._counts.get(kernel, 0) + 1
            self._expected, self.changed = expected, now
            return True

    def is_quiet(self) -> bool:
        """True if launches that the device has not begun claim little."""
        with self._lock:
            return self._expected - self._seen <= self._size * _LITTLE

    def launched(self, kernel: Hashable, now: float) -> None:
        """Count a launch of the kernel."""
        with self._lock:
            self._counts[kernel] = self._counts.get(kernel, 0) + 1
            self._expected += self._claims(kernel)
            self.changed = now

    def reset(self) -> None:
        """Forget all launches and learned claims: a session begins or ends, and the next one may record other
        blocks.
        """
        with self._lock:
            self._each.clear()
            self._forget()

    def read(self, heads: U32s, occupied: int, now: float) -> None:
        """Process a reading of the pool.

        Args:
            heads: (stripes,) every stripe's count of claimed units.
            occupied: units that are claimed and not freed.
            now: time.monotonic() before the reading, s.
        """
        with self._lock:
            self._occupied = occupied
            self.freed = int(heads.sum(dtype=np.int64)) - occupied & MASK
            # of two concurrent readings the earlier one may arrive later
            claimed = int(np.maximum((heads - self._heads).view(np.int32), 0).astype(np.int64).sum())
            if claimed:
                self._heads, self.changed = heads.copy(), max(now, self.changed)
                self._seen += claimed
                self._expected = max(self._expected, float(self._seen))
            elif now - self.changed >= SETTLED_S and self._counts:
                self._settle()

    def _fits(self, claims: float) -> bool:
        pending = self._expected - self._seen
        if self._occupied + pending + claims <= self._size * _MOST:
            return True
        return pending <= 0 and self._occupied + min(claims, self._size * _MUCH) <= self._size

    def _claims(self, kernel: Hashable) -> float:
        return self._each.get(kernel, self._size * _UNKNOWN)

    def _settle(self) -> None:
        """Learn from the launches since the last settled moment, and restart. Launches that claimed nothing teach
        nothing about kernels that did before: they were captured into a graph, or wait.
        """
        known = {kernel: count for kernel, count in self._counts.items() if kernel in self._each}
        unknown = {kernel: count for kernel, count in self._counts.items() if kernel not in self._each}
        expected = sum(self._each[kernel] * count for kernel, count in known.items())
        if unknown:
            rest = max(0.0, self._seen - expected) / sum(unknown.values())
            self._each |= dict.fromkeys(unknown, rest)
        elif expected and self._seen:
            change = max(_FORGET, self._seen / expected)
            self._each |= {kernel: self._each[kernel] * change for kernel in known}
        elif self._seen and not expected:  # kernels that claimed nothing before
            self._each |= dict.fromkeys(known, self._seen / sum(known.values()))
        self._forget()

    def _forget(self) -> None:
        self._counts = {}
        self._expected, self._seen = 0.0, 0
