"""Tracks the threads inside a body, for state that a launch reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager


class Threads:
    """The threads that are inside running().

    Args:
        changed: called when the first thread enters, and when the last one leaves.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._depths: dict[int, int] = {}  # by thread

    @property
    def anywhere(self) -> bool:
        """True if any thread is inside."""
        return bool(self._depths)

    @property
    def here(self) -> bool:
        """True if this thread is. Read at every launch."""
        return bool(self._depths) and threading.get_ident() in self._depths

    @contextmanager
    def running(self) -> Generator[None, None, None]:
        """Count this thread as inside during the body."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, by: int) -> None:
        thread = threading.get_ident()
        with self._lock:
            before = self.anywhere
            depth = self._depths.pop(thread, 0) + by
            if depth:
                self._depths[thread] = depth
            if self.anywhere != before:
                self._changed()
