"""Time that passes only in sleeps."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Clock:
    """A stand-in for the module `time`. meanwhile: called during each sleep."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.meanwhile: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


class Room(threading.Event):
    """Waiting for it advances the fake clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        if not self.is_set():
            self._clock.sleep(timeout)
        return self.is_set()
