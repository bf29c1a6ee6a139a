"""A wait for a device that Ctrl-C can end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from kscope.errors import DriverError

from .driver import CudaDriver

_POLL_S = 0.05
"""Interval of checks for Ctrl-C."""


def waited(driver: CudaDriver, inside: Callable[[], AbstractContextManager[None]]) -> DriverError | None:
    """Wait for all work of a context, in a thread, so that Ctrl-C ends this wait. inside: makes the context current.

    Returns:
        The error of a context that is broken.
    """
    errors: list[DriverError] = []

    def wait() -> None:
        try:
            with inside():
                driver.synchronize_context()
        except DriverError as error:
            errors.append(error)

    waiter = threading.Thread(target=wait, name="kscope wait", daemon=True)
    try:
        waiter.start()
        while waiter.is_alive():
            waiter.join(_POLL_S)
    except RuntimeError:  # the interpreter is exiting: from Python 3.12 on it starts no threads
        wait()
    return errors[0] if errors else None
