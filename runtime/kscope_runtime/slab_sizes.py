"""Adapts the sizes of slabs with records="auto" and marks in loops to the records of their warps. A size grows as soon
as a warp had more records than room, and shrinks once, after some launches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kscope.capture import layout, wire
from kscope.capture.heads import finished
from kscope.instrument.recording import AUTO_RECORDS, log2_records

from .slab_search import Ints, U32s, Units

LOOKS = 4
"""Launches (or parts of one in several copies) after which a size may shrink."""
_SPARE = 4
"""A size has room for a share of 1/_SPARE more records than any warp made: launches differ."""
_MOST_RECORDS = 1 << 12
_WARPS = 64
"""Warps of an SM whose slabs fit in its ring together."""


class SlabSizes:
    """One device's words (wire.SIZES), and statistics of its kernels. Kernels whose ids share a word share a size.

    Every warp reads its kernel's word when it begins, so the host may change it at any time.

    Args:
        words: (wire.SIZES,) memory from which the device's words are written, and their values.

    Attributes:
        looks: (wire.SIZES,) launches of each word's kernels that were seen; from LOOKS on it may no longer shrink.
    """

    def __init__(self, words: U32s) -> None:
        self.words = words
        self._most = np.zeros(wire.SIZES, np.uint32)  # records of a warp
        self.looks = np.zeros(wire.SIZES, np.int64)

    def learns(self, kernels: npt.NDArray[np.uint64]) -> bool:
        """True if the size of one of these kernels may still shrink."""
        return bool((self.looks[(kernels % np.uint64(wire.SIZES)).astype(np.int64)] < LOOKS).any())

    def taken(
        self, units: Units, launches: np.ndarray, at: U32s, entry: npt.NDArray[np.int32], over: bool, ring: int
    ) -> Ints:
        """Learn from slabs that were taken (s,). Returns the words that changed.

        Args:
            units: the copy.
            launches: (l,) wire.LAUNCH.
            at: unit of each slab's head.
            entry: row of each slab's launch, or a negative number.
            over: some warps had more records than room.
            ring: bytes of an SM's ring.
        """
        varies = launches["layout"] >> np.uint32(layout.LOG2_SHIFT) & np.uint32(31) == wire.VARYING
        if not varies.any() or not (over or self.learns(launches["kernel"][varies])):
            return np.zeros(0, np.int64)
        sized = np.flatnonzero(varies[np.maximum(entry, 0)] & (entry >= 0))
        heads = units[at[sized]]
        ended = finished(heads)
        heads, entry = heads[ended], entry[sized[ended]]
        room = np.uint32(1) << (heads[:, 3] >> np.uint32(wire.LOG2_SHIFT))
        return self.seen(launches, entry, heads[:, 6], room, ring)

    def seen(self, launches: np.ndarray, entry: npt.NDArray[np.int32], counts: U32s, room: U32s, ring: int) -> Ints:
        """Learn from finished warps (s,).

        Args:
            launches: (l,) wire.LAUNCH.
            entry: (s,) row of each warp's launch; its kernel has a word.
            counts: (s,) records that it made.
            room: (s,) records that its slab has room for.
            ring: bytes of an SM's ring.

        Returns:
            The words that changed, ascending.
        """
        word = (launches["kernel"][entry] % np.uint64(wire.SIZES)).astype(np.int64)
        over, learning = counts > room, self.looks[word] < LOOKS
        if not (over.any() or learning.any()):
            return np.zeros(0, np.int64)
        np.maximum.at(self._most, word, counts)
        full, before = np.unique(word[over]), self.words.copy()
        _, first = np.unique(entry[learning], return_index=True)
        looked = word[learning][first]
        np.add.at(self.looks, looked, 1)
        known = np.unique(looked[self.looks[looked] >= LOOKS])
        self.words[known] = np.minimum(self.words[known], self._needed(known, ring))
        self.words[full] = np.maximum(self.words[full], self._needed(full, ring))
        return np.flatnonzero(self.words != before)

    def _needed(self, words: Ints, ring: int) -> U32s:
        """The last place in rings that hold the observed records, and some more."""
        most = self._most[words].astype(np.int64)
        sizes = [1 << log2_records(count + count // _SPARE) for count in most.tolist()]
        return np.asarray(np.minimum(np.array(sizes, np.int64), _limit(ring)) - 1, np.uint32)


def _limit(ring: int) -> int:
    """The most records of a slab with which each warp of an SM finds one in its ring; AUTO_RECORDS at least."""
    records = (ring // _WARPS - wire.HEAD_BYTES) // layout.RECORD_BYTES
    return min(_MOST_RECORDS, max(AUTO_RECORDS, 1 << max(records, 1).bit_length() - 1))
