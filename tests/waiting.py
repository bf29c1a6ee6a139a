"""Waits for other threads and processes, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 300
"""Longer waits count as a hang."""


def wait_until(condition: Callable[[], object]) -> None:
    """Return when the condition is true. Raises AssertionError if it does not become true."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"still false after {PATIENCE_S} s"
        time.sleep(0.005)
