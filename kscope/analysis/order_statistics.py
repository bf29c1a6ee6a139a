"""Order statistics of many values without sorting all of them.

    sample, sorted         the two values between which a rank lies
    a pass over all        the counts below, at and above these two, and the values between them
    a selection            among these few

The counts prove the result: if the sample was misleading, everything is sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np

from ..util.arrays import Float, Int64

_SAMPLE = 1 << 14
_BATCH = 1 << 16
"""Values of one job: their comparisons stay in a core's cache."""


class Ranked:
    """The values of given ranks in pieces of a column, and the next ones.

    Args:
        values: (n,) float64.
        begin, length: pieces values[begin[i]:][:length[i]].
        ranks: (k,) from 0, ascending.
    """

    def __init__(self, values: Float, begin: Int64, length: Int64, ranks: Int64) -> None:
        begin, length = _cut(begin, length)
        self._values, self._begin, self._length, self._ranks = values, begin, length, ranks
        self._starts, self.total = np.cumsum(length) - length, int(length.sum())
        total = self.total
        at = np.linspace(0, total - 1, min(_SAMPLE, total)).astype(np.int64)
        piece = np.searchsorted(self._starts, at, side="right") - 1
        sample = np.sort(values[begin[piece] + at - self._starts[piece]])
        part = ranks / max(1, total - 1)
        place, away = part * (len(sample) - 1), 4 * np.sqrt(part * (1 - part) * len(sample)) + 2
        fenced = np.concatenate([[-np.inf], sample, [np.inf]])
        self._low = fenced[np.clip(np.floor(place - away) + 1, 0, len(sample) + 1).astype(np.int64)]
        self._high = fenced[np.clip(np.ceil(place + away) + 1, 0, len(sample) + 1).astype(np.int64)]
        self._counts: list[Int64] = []
        self._between: list[list[Float]] = [[] for _ in ranks]
        self._ends: list[tuple[float, float]] = []

    def jobs(self) -> list[Callable[[], None]]:
        """The pass in pieces that may run in parallel; run each once."""
        cuts = np.searchsorted(self._starts, np.arange(0, self.total, _BATCH)).tolist()
        edges = sorted({*cuts, 0, len(self._begin)})
        return [partial(self._pass, a, b) for a, b in pairwise(edges)]

    def _pass(self, first: int, last: int) -> None:
        some = self._joined(first, last)
        counts = np.zeros((4, len(self._ranks)), np.int64)
        for index, (low, high) in enumerate(zip(self._low.tolist(), self._high.tolist(), strict=True)):
            above, under = some > low, some < high
            counts[:2, index] = np.count_nonzero(some < low), len(some) - np.count_nonzero(above)
            counts[2:, index] = np.count_nonzero(under), np.count_nonzero(some <= high)
            above &= under
            self._between[index].append(some.take(np.flatnonzero(above)))
        self._counts.append(counts)
        self._ends.append((float(some.min()), float(some.max())))

    def _joined(self, first: int, last: int) -> Float:
        pieces = zip(self._begin[first:last].tolist(), self._length[first:last].tolist(), strict=True)
        return np.concatenate([self._values[a : a + size] for a, size in pieces])

    def result(self) -> tuple[float, float, Float]:
        """(least, greatest, (k, 2) the values of the ranks and the next ones), after all jobs."""
        counts = np.sum(self._counts, axis=0).T.tolist()
        both = np.minimum(self._ranks[:, None] + np.arange(2), self.total - 1).tolist()
        found = [[self._of(index, rank, *counts[index]) for rank in ranks] for index, ranks in enumerate(both)]
        return min(least for least, _ in self._ends), max(most for _, most in self._ends), np.array(found)

    def _of(self, index: int, rank: int, under_low: int, to_low: int, under_high: int, to_high: int) -> float:
        if to_low <= rank < under_high:
            return _select(np.concatenate(self._between[index]), rank - to_low)
        if under_low <= rank < to_low:
            return float(self._low[index])
        if under_high <= rank < to_high:
            return float(self._high[index])
        return _select(self._joined(0, len(self._begin)), rank)  # the sample was misleading


def _select(values: Float, rank: int) -> float:
    values.partition(rank)
    return float(values[rank])


def _cut(begin: Int64, length: Int64) -> tuple[Int64, Int64]:
    """The same pieces, none longer than a batch."""
    parts = -(-length // _BATCH)
    within = (np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)) * _BATCH
    return np.repeat(begin, parts) + within, np.minimum(np.repeat(length, parts) - within, _BATCH)
