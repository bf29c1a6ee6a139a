"""Whether a pool has room, and a launch's own look at it.

What lives here: what counts as room, and that look. What does not: the drain's looks (passes.py), what a launch does
where there is no room (drain.py).
"""

from __future__ import annotations

import math
import threading
import time

import numpy as np

from kscope.capture import layout
from kscope.errors import DriverError

from .accounting import Ints, U32s
from .device import Device

_LATE_S = 0.005
"""How long a launch waits for its look: a copy of microseconds, or of some milliseconds behind one of the drain's."""


def has_room(claimed: Ints, ring: U32s) -> bool:
    """Whether no more than a quarter of the pool, and of its reserve (the last of the stripes), is claimed."""
    return bool(4 * claimed[-1] <= ring[-1] and 4 * claimed.sum() <= ring.sum())


class Glance:
    """Looks at one device's pool by threads that are about to launch there: the device's context is current.

    What is free is told by the device's own words: a limit that stands there was written after the memory below it was
    cleared, while the host's tails run ahead of both. So nothing here is the drain's, and no lock of its is waited for.
    """

    def __init__(self, device: Device) -> None:
        self._driver, self._address = device.driver, device.control + layout.GATE_BYTES
        self._stream = device.driver.stream()
        self._bytes = device.driver.pinned(device.stripes * layout.STRIPE_BYTES)
        self._words = self._bytes.view(layout.STRIPE)
        self._one = threading.Lock()
        self._tried = self._found = -math.inf  # when the last look began, and the last one that found room

    def look(self, every: float) -> bool:
        """Whether there is room, by a look that is at most `every` seconds old: there is one as often, by one thread at
        a time. False as well where that cannot be told now."""
        if time.monotonic() - self._found < every:
            return True
        if not self._one.acquire(blocking=False):
            return False  # another launch looks
        try:
            now = time.monotonic()  # what is claimed from here on, the look may miss
            if now - self._tried >= every:
                self._tried = now
                if self._read() and self._room():
                    self._found = now
            return now - self._found < every
        finally:
            self._one.release()

    def _read(self) -> bool:
        """Copy the stripes' words; False where they do not come in time. The stream is asked, not waited for: it may
        share a queue with one of the user's, whose work waits for this very launch."""
        try:
            # the launch may be part of a graph capture, which forbids such calls unless one says that one knows
            with self._driver.relaxed():
                if not self._driver.ready(self._stream):
                    return False  # the copy before this one has not come yet
                self._driver.read(self._bytes, self._address, self._stream)
                late = time.monotonic() + _LATE_S
                while not self._driver.ready(self._stream):
                    if time.monotonic() > late:
                        return False
        except DriverError:
            return False  # the drain meets it as well, and says so: a user's launch is not the place
        return True

    def _room(self) -> bool:
        words = self._words
        ring = words["mask"] + np.uint32(1)
        # a limit stands one ring above the tail
        return has_room((words["head"] - (words["limit"] - ring)).astype(np.int64), ring)
