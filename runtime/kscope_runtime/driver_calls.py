"""Batches the drain's driver calls in one compiled call, if the driver's functions have addresses. From Python, the
drain would wait for the interpreter's lock after each, and the program's launches for the drain.
"""

from __future__ import annotations

import numpy as np

from kscope import native

from .driver import CudaDriver
from .memory_ranges import Bytes, Ranges

_HOST, _DEVICE = 1, 2
"""CUmemorytype."""
_RESULT_BITS = 16


class DriverCalls:
    """Copies in the order of the requests. They begin at the next synchronize() or flush(), all at once; until then, do
    not change their sources. Not thread-safe.

    Attributes:
        entry_points: addresses of the driver's functions, if it has any.
    """

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self.entry_points = driver.entry_points()
        self._calls: list[np.ndarray] = []  # each (n, 5) uint64, as calls.c takes them
        self._columns: list[np.ndarray] = []  # operands of calls

    def read(self, into: Bytes, address: int, stream: int) -> None:
        """Same as CudaDriver.read()."""
        if self.entry_points is None:
            self._driver.read(into, address, stream)
        else:
            self._add(self.entry_points.read, into.ctypes.data, address, into.nbytes, stream)

    def read_ranges(self, into: Bytes, ranges: Ranges, stream: int) -> None:
        """Same as CudaDriver.read_ranges()."""
        if self.entry_points is None:
            self._driver.read_ranges(into, ranges, stream)
            return
        to = np.uint64(into.ctypes.data) + (np.cumsum(ranges.size) - ranges.size).astype(np.uint64)
        self._add_each(self.entry_points.read, to, ranges.address, ranges, stream)

    def write_ranges(self, ranges: Ranges, words: Bytes, stream: int) -> None:
        """Same as CudaDriver.write_ranges()."""
        if self.entry_points is None:
            self._driver.write_ranges(ranges, words, stream)
        else:
            self._add_each(self.entry_points.write, ranges.address, np.uint64(words.ctypes.data), ranges, stream)

    def write_column(self, address: int, pitch: int, words: Bytes, width: int, stream: int) -> None:
        """Same as CudaDriver.write_column()."""
        if self.entry_points is None:
            self._driver.write_column(address, pitch, words, width, stream)
            return
        source = 0, 0, _HOST, words.ctypes.data, 0, 0, width
        column = np.array([*source, 0, 0, _DEVICE, 0, address, 0, pitch, width, words.nbytes // width], np.uint64)
        self._columns.append(column)  # a CUDA_MEMCPY2D
        self._add(self.entry_points.write_column, column.ctypes.data, stream)

    def wait(self, stream: int) -> None:
        """Let later calls begin when the stream's copies have arrived."""
        if self.entry_points is None:
            self._driver.synchronize(stream)
        else:
            self._add(self.entry_points.synchronize, stream)

    def synchronize(self, stream: int) -> None:
        """Make all calls, and wait for the stream's copies."""
        self.wait(stream)
        self.flush()

    def flush(self) -> None:
        """Make all calls. After an error, later calls are skipped."""
        if not self._calls:
            return
        calls = np.concatenate(self._calls)
        columns, self._calls, self._columns = self._columns, [], []
        failed = native.call("calls", len(calls), calls)
        del columns  # until now calls referred to them
        if failed:
            self.check(int(calls[failed >> _RESULT_BITS, 0]), failed & (1 << _RESULT_BITS) - 1)

    def check(self, point: int, result: int) -> None:
        """Raise the error of a function's call. point: its address."""
        assert self.entry_points is not None
        self._driver.check(self.entry_points.name(point), result)

    def _add(self, point: int, *arguments: int) -> None:
        self._calls.append(np.array([[point, *arguments, *(0,) * (4 - len(arguments))]], np.uint64))

    def _add_each(
        self, point: int, to: np.ndarray, source: np.ndarray | np.uint64, ranges: Ranges, stream: int
    ) -> None:
        calls = np.empty((len(ranges.size), 5), np.uint64)
        for column, values in enumerate((np.uint64(point), to, source, ranges.size, np.uint64(stream))):
            calls[:, column] = values
        self._calls.append(calls)
