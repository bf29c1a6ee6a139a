"""The parts of a pool file as numpy arrays; their contents change while the process writes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .. import layout, wire
from ..heads import Launches, Units
from .pool_reading import Pool, batches

Lines = npt.NDArray[np.uint32]
"""(n, 16): lines of 64 bytes."""


def units(pool: Pool) -> Units:
    """The pool, (n, 8) uint32."""
    return np.frombuffer(pool.pool, np.uint32).reshape(-1, wire.UNIT // 4)


def book(pool: Pool) -> Launches:
    """The launch table, (SLOTS,) wire.LAUNCH."""
    return np.frombuffer(pool.book, wire.LAUNCH)


def drained_slabs(pool: Pool) -> tuple[Lines, int]:
    """The drained slabs in the file, oldest first, and the number of batches that were overwritten."""
    found, lost = batches(pool)
    return np.concatenate([lines_of(memoryview(b"")), *map(lines_of, found)]), lost


def lines_of(data: memoryview) -> Lines:
    """Bytes as lines. data: a multiple of 64 bytes."""
    return np.frombuffer(data, np.uint32).reshape(-1, layout.LINE // 4)
