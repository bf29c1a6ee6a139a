"""The pool in a file, read when the context is broken: from the file, and the rest through another process."""

from __future__ import annotations

import numpy as np

from kscope.capture.pool_file import PoolFile

from .driver import Memory
from .ranges import Bytes, Ranges, read_each


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

    def read_ranges(self, into: Bytes, ranges: Ranges, stream: int) -> None:
        """Copy ranges, one after the other in `into`."""
        read_each(self, into, ranges, stream)
