"""Determines if a pool has room, with a launch's own reading of it."""

from __future__ import annotations

import math
import threading
import time

import numpy as np

from kscope import native
from kscope.capture import wire
from kscope.errors import DriverError

from .device import Device
from .forecast import Forecast
from .slab_search import Ints, U32s

_LATE_S = 0.005
"""Longest wait of a launch for its reading: a copy of microseconds, or some milliseconds after one of the drain's."""


def has_room(claimed: Ints, ring: U32s) -> bool:
    """True if at most a quarter of the pool, and of its reserve (the last stripe), is claimed."""
    return bool(4 * claimed[-1] <= ring[-1] and 4 * claimed.sum() <= ring.sum())


class PoolReading:
    """Reads of one device's pool by threads about to launch there, with the device's context current.

    Free memory is computed from words on the device: a limit was written after the memory below it was cleared, while
    the host's tails run ahead of both. So this uses no state of the drain and takes none of its locks.
    """

    def __init__(self, device: Device) -> None:
        self._driver, self._address = device.driver, device.control + wire.STRIPES_AT
        self._stream = device.driver.stream()
        self._entry_points = device.driver.entry_points()
        self._bytes = device.driver.pinned(device.stripes * wire.STRIPE_BYTES)
        self._words = self._bytes.view(wire.STRIPE)
        self._one = threading.Lock()
        self._tried = self._found = -math.inf  # start of the last reading, and of the last one with room

    def has_room(self, every: float, forecast: Forecast) -> bool:
        """True if there is room, by a reading at most `every` seconds old, made by one thread at a time and passed to
        the forecast. False if that is unknown.
        """
        if time.monotonic() - self._found < every:
            return True
        if not self._one.acquire(blocking=False):
            return False  # another launch is reading
        try:
            now = time.monotonic()  # the reading may miss later claims
            if now - self._tried >= every:
                self._tried = now
                if self._read() and self._room(forecast, now):
                    self._found = now
            return now - self._found < every
        finally:
            self._one.release()

    def _read(self) -> bool:
        """Copy the stripes' words; False if they do not arrive in time.

        Polls the stream instead of waiting: it may share a queue with a user's stream whose work waits for this very
            launch. Compiled, so that other threads have the interpreter's lock meanwhile.
        """
        try:
            # a graph capture would forbid these calls
            with self._driver.relaxed():
                if self._entry_points is not None:
                    to_poll = self._entry_points.read, self._entry_points.ready, self._stream, self._bytes
                    return not native.call("polled", *to_poll, self._address, len(self._bytes), int(1e9 * _LATE_S))
                if not self._driver.ready(self._stream):
                    return False  # the previous copy has not arrived
                self._driver.read(self._bytes, self._address, self._stream)
                late = time.monotonic() + _LATE_S
                while not self._driver.ready(self._stream):
                    if time.monotonic() > late:
                        return False
        except DriverError:
            return False  # the drain meets and reports it
        return True

    def _room(self, forecast: Forecast, now: float) -> bool:
        words = self._words
        ring = words["mask"] + np.uint32(1)
        # a limit is one ring above the tail
        claimed = (words["head"] - (words["limit"] - ring)).astype(np.int64)
        forecast.read(words["head"], int(claimed.sum()), now)
        return has_room(claimed, ring)
