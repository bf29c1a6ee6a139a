"""Readings of a device's stripes, by one compiled call each where the driver has addresses of its functions: from
Python, a thread would wait for the interpreter's lock after every call, and the program for the thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kscope import native
from kscope.capture import wire

from .device import Device
from .driver import Memory
from .ranges import Bytes
from .slab_search import U32s

Copy = tuple[Bytes, int]
"""Pinned memory, and the address on the device that it is read from."""


class StripeWords:
    """One device's stripes as of the last reading.

    Attributes:
        before, words: (stripes,) wire.STRIPE, the two copies of a reading.
    """

    def __init__(self, device: Device) -> None:
        self._driver, self._address = device.driver, device.control + wire.STRIPES_AT
        self._points = _points(device)
        size = device.stripes * wire.STRIPE_BYTES
        self.before, self.words = (device.driver.pinned(size).view(wire.STRIPE) for _ in range(2))

    def read(self, stream: int, memory: Memory | None, more: Copy | None) -> None:
        """Read all stripes twice, the second time after the first copy has arrived.

        Args:
            stream: of the copies.
            memory: what is read; None for the device's own memory.
            more: read as well.
        """
        copies = [(words.view(np.uint8), self._address) for words in (self.before, self.words)]
        copies = copies if more is None else [more, *copies]
        if memory is None and self._points is not None:
            result = native.call("in_order", *self._points, stream, len(copies), *_columns(copies))
            self._driver.check("cuMemcpyDtoHAsync", result)
            return
        memory = memory or self._driver
        for into, address in copies:
            memory.read(into, address, stream)
            if more is None or into is not more[0]:
                memory.synchronize(stream)


class Watch:
    """Waits for claims without the interpreter's lock, and without taking anything: it has memory and a stream of its
    own, so other threads may read and take meanwhile.
    """

    def __init__(self, device: Device, entries: int) -> None:
        driver = device.driver
        self._points = _points(device)
        self._address, self._stripes = device.control + wire.STRIPES_AT, device.stripes
        self._words, self._ahead = (
            driver.pinned(size) for size in (device.stripes * wire.STRIPE_BYTES, entries * wire.LAUNCH_BYTES)
        )
        self._half = np.zeros(len(self._ahead) // 2, np.uint8)
        self._stream = driver.stream()

    @property
    def works(self) -> bool:
        """False if it cannot wait here."""
        return self._points is not None

    def wait(
        self, tail: U32s, enough: U32s, entries: int | None, wake: int, pauses: tuple[float, float], most: float
    ) -> None:
        """Return when something is to be taken.

        Args:
            tail, enough: (stripes,) where claims begin, and units from there on that are worth a copy.
            entries: address of the launch table's next entries. Return when the second half of them changes: a later
                pass would miss those that come after them.
            wake: a descriptor. Return when it can be read.
            pauses: s before the first reading; each pause is twice the one before, up to the second number.
            most: s.
        """
        assert self._points is not None
        copies = [(self._words, self._address)]
        if entries is not None:
            copies.append((self._ahead, entries))
        times = (int(1e9 * seconds) for seconds in (*pauses, most))
        pitch = wire.STRIPE_BYTES // 4
        columns = *_columns(copies), self._stripes, pitch, tail, enough, self._half
        if native.call("look", *self._points, self._stream, len(copies), *columns, wake, *times):
            self._points = None  # the next pass meets the error and reports it


def _points(device: Device) -> tuple[int, int] | None:
    return device.driver.entry_points() if native.available() else None


def _columns(copies: Sequence[Copy]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    to = np.array([into.ctypes.data for into, _ in copies], np.uint64)
    return to, np.array([address for _, address in copies], np.uint64), np.array([len(into) for into, _ in copies])
