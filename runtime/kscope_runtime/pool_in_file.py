"""Device memory whose pool is a file that this process maps: the pool is read and cleared without the device."""

from __future__ import annotations

import numpy as np

from kscope.capture.pools.pool_file import PoolFile

from .driver import Memory
from .memory_ranges import Bytes, Ranges, read_each


class InFile:
    """Memory of which a part is a pool file, which this process maps.

    Args:
        file: the file.
        rest: reads other addresses.
    """

    def __init__(self, file: PoolFile, rest: Memory) -> None:
        self._pool, self._rest = file.pool, rest
        self._first = file.pool.ctypes.data

    def synchronize(self, stream: int) -> None:
        """Wait for reads."""
        self._rest.synchronize(stream)

    def read(self, into: Bytes, address: int, stream: int) -> None:
        """Copy to host memory."""
        at = address - self._first
        if 0 <= at < len(self._pool):
            np.copyto(into, self._pool[at : at + into.nbytes])
        else:
            self._rest.read(into, address, stream)

    def clear(self, ranges: Ranges) -> bool:
        """Zero ranges of the pool; False if they are not in it."""
        first = ranges.address.astype(np.int64) - self._first
        if len(first) and not 0 <= int(first[0]) < len(self._pool):
            return False
        for at, size in zip(first.tolist(), ranges.size.tolist(), strict=True):
            self._pool[at : at + size] = 0
        return True

    def read_ranges(self, into: Bytes, ranges: Ranges, stream: int) -> None:
        """Copy ranges, one after the other in `into`."""
        read_each(self, into, ranges, stream)
