"""Signals whose handlers must wait: `with Held():` while state changes in the main thread."""

from __future__ import annotations

import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from inspect import currentframe
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2")
_NUMBERS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


class Prompt(ABC):
    """A signal handler that raises nothing and changes no state: Held() leaves it in place."""

    @abstractmethod
    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""


class Held:
    """A context manager: Python's signal handlers run when it ends, so nothing inside it is interrupted.

    Does nothing outside the main thread, where no handler runs. Signals with the default action are not held.
    """

    def __init__(self) -> None:
        self._found: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._arrived: list[int] = []
        self._passing = False

    def __enter__(self) -> Held:
        if threading.current_thread() is not threading.main_thread():
            return self
        try:
            for number in _NUMBERS:
                handler = signal.getsignal(number)
                if callable(handler) and not isinstance(handler, Prompt):
                    self._found[number] = handler
                    signal.signal(number, self._handle)
        except BaseException as error:  # a signal that is not held yet
            self._restore()
            if not isinstance(error, ValueError):  # a subinterpreter has no signals
                raise
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self._restore()
        finally:
            self._passing = True  # a handler that could not be restored calls the one it replaced
            self._restore()
        self.deliver()

    def let(self, wait: Callable[[], T]) -> T:
        """Run a function that signals may interrupt. After a handler has raised, signals are held again."""
        self.deliver()
        self._passing = True
        try:
            return wait()
        finally:
            self._passing = False

    def deliver(self) -> None:
        """Run the handlers of the signals that have arrived. Raises what they raise."""
        while self._arrived:
            number = self._arrived.pop(0)
            self._found[number](number, currentframe())

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._passing:
            self._arrived.append(number)
            return
        self._passing = False  # its exception must reach the caller, uninterrupted
        self._found[number](number, frame)
        self._passing = True

    def _restore(self) -> None:
        for number, handler in reversed(self._found.items()):
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)
