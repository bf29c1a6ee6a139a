"""Read times of samples, per function, in bounded memory: CUPTI counts samples without their times."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import numpy.typing as npt

from kscope.capture.samples import WINDOW, Rows

MOST_WINDOWS = 1 << 11
MOST_ROWS = 1 << 16
"""Most rows, each a function in a window: 2 MiB in a capture."""


class SampleTimes:
    """Samples per function between two rounds of reading that found some, UNIX ns: they are read a while after they
    were taken. Neighbors are joined when there are too many.
    """

    def __init__(self) -> None:
        self._windows: list[tuple[int, int, Counter[int]]] = []
        self._begin, self._new = time.time_ns(), Counter[int]()

    def start(self) -> None:
        """Start of the sampling."""
        self._begin = time.time_ns()

    def add(self, functions: npt.NDArray[np.int64], counts: npt.NDArray[np.uint64]) -> None:
        """Add samples (n,) of functions (n,)."""
        which, at = np.unique(functions, return_inverse=True)
        sums = np.zeros(len(which), np.uint64)
        np.add.at(sums, at.ravel(), counts)
        self._new.update(dict(zip(which.tolist(), sums.tolist(), strict=True)))

    def turn(self) -> None:
        """End a window: the added samples were taken since the previous round that had some, or since start()."""
        end = time.time_ns()
        if self._new and end > self._begin:
            self._windows.append((self._begin, end, self._new))
            self._new = Counter()
            if len(self._windows) > MOST_WINDOWS or sum(len(one) for _, _, one in self._windows) > MOST_ROWS:
                self._join()
            self._begin = end

    def end(self) -> None:
        """End the last window: the added samples were taken since it began."""
        if not self._windows:
            self.turn()
        elif self._new:
            begin, _, found = self._windows[-1]
            self._windows[-1] = (begin, time.time_ns(), found + self._new)
            self._new = Counter()

    def rows(self) -> Rows:
        """The windows in order of time."""
        rows = [
            (begin, end, function, count)
            for begin, end, found in self._windows
            for function, count in sorted(found.items())
        ]
        return np.array(rows, WINDOW)

    def _join(self) -> None:
        joined = [(a[0], b[1], a[2] + b[2]) for a, b in zip(self._windows[::2], self._windows[1::2], strict=False)]
        self._windows = joined + self._windows[2 * len(joined) :]
