"""Waits for claims without the interpreter's lock."""

from __future__ import annotations

import numpy as np

from kscope import native
from kscope.capture import wire

from .accounting import Stripes
from .device import Device
from .slab_search import U32s


class Watch:
    """Waits for claims without the interpreter's lock, and without taking anything: it has separate memory and a
    separate stream, so other threads may read and take meanwhile.
    """

    def __init__(self, device: Device, entries: int) -> None:
        driver = device.driver
        self._entry_points = driver.entry_points()
        self._address = device.control + wire.STRIPES_AT
        self._words, self._ahead = (
            driver.pinned(size) for size in (device.stripes * wire.STRIPE_BYTES, entries * wire.LAUNCH_BYTES)
        )
        self._half = np.zeros(len(self._ahead) // 2, np.uint8)
        self._stream = driver.stream()

    def wait(
        self, stripes: Stripes, share: int, head: U32s, entries: int | None, wake: int, pauses: tuple[float, float],
        most: float,
    ) -> bool:  # fmt: skip
        """Wait until 1/share of a stripe is claimed. Returns False at once if it is, or without compiled loops.

        Args:
            stripes: initial values of the stripes.
            share: as for Passes.once().
            head: at the last reading.
            entries: address of the launch table's next entries. A change of their second half ends the wait: a later
                pass would miss those that come after them.
            wake: a descriptor. The wait ends when it can be read.
            pauses: s before the first reading; each pause is twice the previous one, up to the second number.
            most: longest wait, s.
        """
        enough = (stripes.ring + np.uint32(share - 1)) // np.uint32(share)
        if self._entry_points is None or bool((stripes.claimed(head) >= enough).any()):
            return False
        copies = [(self._words, self._address)]
        if entries is not None:
            copies.append((self._ahead, entries))
        columns = (
            np.array([into.ctypes.data for into, _ in copies], np.uint64),
            np.array([address for _, address in copies], np.uint64), np.array([len(into) for into, _ in copies]),
        )  # fmt: skip
        words = len(enough), wire.STRIPE_BYTES // 4, stripes.tail, enough, self._half
        times = (int(1e9 * seconds) for seconds in (*pauses, most))
        calls = self._entry_points.read, self._entry_points.synchronize
        if native.call("look", *calls, self._stream, len(copies), *columns, *words, wake, *times):
            self._entry_points = None  # the next pass hits the error and reports it
        return True
