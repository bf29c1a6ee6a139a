"""Counts of samples per function, instruction and reason, in bounded memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kscope.capture.samples import ROW, Rows

MOST_ROWS = 1 << 21
"""Different counts that are kept: 32 MiB."""
_PENDING, _SLACK = 1 << 18, 1 << 20
"""Entries that wait to be added, and counts beyond the limit before some are dropped, which takes a while."""
_FUNCTION_BITS, _PC_BITS, _REASON_BITS = 18, 36, 10
U64s = npt.NDArray[np.uint64]


class SampleTable:
    """The counts.

    Attributes:
        left_out: samples of counts that were not kept, because the table was full.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self._keys, self._counts = np.zeros(0, np.uint64), np.zeros(0, np.uint64)
        self._new: list[tuple[U64s, U64s]] = []
        self._waiting = 0

    def add(
        self, function: npt.NDArray[np.int64], pc: npt.NDArray[np.int64], reason: npt.NDArray[np.int64], count: U64s
    ) -> None:
        """Add samples, one entry each; functions below 2^18, offsets below 2^32, reasons below 2^10.

        Args:
            function, pc, reason: of each entry.
            count: its samples.
        """
        keys = function.astype(np.uint64) << np.uint64(_PC_BITS + _REASON_BITS)
        keys |= pc.astype(np.uint64) << np.uint64(_REASON_BITS)
        keys |= reason.astype(np.uint64)
        self._new.append((keys, count.astype(np.uint64)))
        self._waiting += len(keys)
        if self._waiting >= _PENDING:
            self._merge()

    def rows(self) -> Rows:
        """The counts, sorted by function, instruction and reason."""
        self._merge()
        self._cut()
        found = np.zeros(len(self._keys), ROW)
        found["function"] = self._keys >> np.uint64(_PC_BITS + _REASON_BITS)
        found["pc"] = (self._keys >> np.uint64(_REASON_BITS)) & np.uint64((1 << _PC_BITS) - 1)
        found["reason"] = self._keys & np.uint64((1 << _REASON_BITS) - 1)
        found["count"] = self._counts
        return found

    def _merge(self) -> None:
        if not self._new:
            return
        keys = np.concatenate([keys for keys, _ in self._new])
        counts = np.concatenate([counts for _, counts in self._new])
        self._new, self._waiting = [], 0
        order = np.argsort(keys, kind="stable")
        keys, counts = keys[order], counts[order]
        first = np.flatnonzero(np.diff(keys, prepend=keys[:1] ^ np.uint64(1)))
        keys, sums = keys[first], np.add.reduceat(counts, first) if len(first) else counts
        at = np.searchsorted(self._keys, keys)  # the table stays sorted: only new entries are not
        known = np.append(self._keys, ~keys[-1:])[at] == keys
        self._counts[at[known]] += sums[known]
        self._keys = np.insert(self._keys, at[~known], keys[~known])
        self._counts = np.insert(self._counts, at[~known], sums[~known])
        if len(self._keys) > MOST_ROWS + _SLACK:
            self._cut()

    def _cut(self) -> None:
        """Drop the smallest counts beyond the limit."""
        more = len(self._keys) - MOST_ROWS
        if more > 0:
            kept = np.ones(len(self._keys), bool)
            kept[np.argpartition(self._counts, more)[:more]] = False
            self.left_out += int(self._counts[~kept].sum())
            self._keys, self._counts = self._keys[kept], self._counts[kept]
