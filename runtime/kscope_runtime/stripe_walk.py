"""Walks everything claimed in a stripe, which may be more than a copy holds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .accounting import MASK, Stripes, uncut
from .slab_search import Pieces, Slabs, U32s, Units, find
from .staging import Staging


def walk(
    staging: Staging, state: Stripes, stripe: int, skipped: U32s, head: U32s
) -> Iterator[tuple[Units, Pieces, Slabs]]:  # fmt: skip
    """Yield a stripe's claimed units, copy by copy in staging memory, each valid until the next; no slab is cut.

    Args:
        staging: where to.
        state: the stripes.
        stripe: which one.
        skipped, head: every stripe's.
    """
    tail, left = int(state.tail[stripe]), int(state.granted(head)[stripe])
    while left:
        cut, one = min(left, staging.units), slice(stripe, stripe + 1)
        where = np.array([stripe]), np.array([tail], np.uint32), np.array([cut]), np.array([cut == left])
        pieces = Pieces.of(*where, skipped[one], head[one])
        copied = staging.fetch(pieces, 0)
        staging.arrived()
        slabs = find(copied, pieces)
        units = min(cut, int(uncut(copied, pieces, slabs)[0]))
        yield copied[:units], pieces, slabs
        tail, left = tail + units & MASK, left - units
