"""Counts of samples per function, instruction and reason, in bounded memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kscope.capture.samples import ROW, Rows

MOST_ROWS = 1 << 21
"""Different counts that are kept: 32 MiB."""
_PENDING = 1 << 18
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
        found = np.zeros(len(self._keys), ROW)
        found["function"] = self._keys >> np.uint64(_PC_BITS + _REASON_BITS)
        found["pc"] = (self._keys >> np.uint64(_REASON_BITS)) & np.uint64((1 << _PC_BITS) - 1)
        found["reason"] = self._keys & np.uint64((1 << _REASON_BITS) - 1)
        found["count"] = self._counts
        return found

    def _merge(self) -> None:
        if not self._new:
            return
        keys = np.concatenate([self._keys, *(keys for keys, _ in self._new)])
        counts = np.concatenate([self._counts, *(counts for _, counts in self._new)])
        self._new, self._waiting = [], 0
        order = np.argsort(keys, kind="stable")
        keys, counts = keys[order], counts[order]
        first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.zeros(0, np.int64)
        sums = np.add.reduceat(counts, first) if len(first) else counts
        keys = keys[first]
        if len(keys) > MOST_ROWS:
            kept = np.sort(np.argsort(sums, kind="stable")[len(sums) - MOST_ROWS :])
            self.left_out += int(sums.sum()) - int(sums[kept].sum())
            keys, sums = keys[kept], sums[kept]
        self._keys, self._counts = keys, sums
