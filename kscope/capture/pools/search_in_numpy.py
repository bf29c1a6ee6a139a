"""Searches the parts of a pool file in numpy; native/claims.c and native/drained.c do the same."""

from __future__ import annotations

import numpy as np

from .. import layout, wire
from ..heads import is_head, log2_of, sizes, without_overlap
from .pool_layout import BATCH


def slabs(pool: memoryview) -> tuple[memoryview, memoryview]:
    """Same as pool_reading.slabs()."""
    every = np.frombuffer(pool, np.uint32).reshape(-1, wire.UNIT // 4)
    at = np.flatnonzero(is_head(every))
    heads = every[at]
    log2 = log2_of(heads)
    good = (log2 >= layout.MIN_LOG2_RECORDS) & (log2 <= layout.MAX_LOG2_RECORDS)
    good &= at + sizes(heads) <= len(every)
    at, heads = at[good], heads[good]
    found = without_overlap(at, sizes(heads))
    return at[found].astype(np.uint32).data, log2_of(heads[found]).astype(np.uint8).data


def next_batch(lines: memoryview, at: int) -> int:
    """The first line from `at` on that begins with BATCH; the number of lines if there is none."""
    first = np.frombuffer(lines, np.uint32)[:: layout.LINE // 4]
    found = np.flatnonzero(first[at:] == BATCH)
    return at + int(found[0]) if len(found) else len(first)
