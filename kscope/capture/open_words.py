"""Open words: the last region that a warp entered, stored in an unfinished head (wire.OPEN)."""

from __future__ import annotations

import numpy as np

from ..util.arrays import Bools
from . import wire
from .heads import Units, finished

OpenWords = np.ndarray
"""(n,) wire.OPEN."""


def open_words(heads: Units) -> OpenWords:
    """The words of heads, (n,); all 0 where a warp has entered no such region, or has finished."""
    rows = np.where(finished(heads)[:, None], 0, heads[:, wire.OPEN_AT // 4 :]).astype(np.uint32)
    return np.ascontiguousarray(rows).view(wire.OPEN)[:, 0]


def torn(words: OpenWords) -> Bools:
    """True for words with halves of two stores, (n,): the sequence's low bits differ. A reader reads again."""
    low = words["sequence"] >> np.uint32(wire.SEQUENCE_SHIFT) & np.uint32(wire.SEQUENCE_LOW)
    return np.asarray(low != words["id"] & np.uint32(wire.SEQUENCE_LOW))


def is_entered(words: OpenWords) -> Bools:
    """True for words of an entered region, (n,)."""
    return np.asarray(words["sequence"] != 0)


def hashes(words: OpenWords) -> np.ndarray:
    """Hashes of the regions' names, (n,) uint32."""
    return np.asarray(words["id"] >> np.uint32(wire.SEQUENCE_LOW.bit_length()))
