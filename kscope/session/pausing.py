"""Pauses of a session."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from ..errors import UsageError
from ..instrument.backend import Backend
from .stalls import Stalls
from .start_and_stop import Forms
from .states import STATE, exclusive


class Pausing(Forms):
    """The part of a session that pauses it."""

    _backends: dict[str, Backend]
    _paused: bool
    _was_paused: bool
    _stalls: Stalls

    @contextmanager
    def paused(self) -> Generator[None, None, None]:
        """A context manager: warps that begin inside it do not record.

        Nothing is compiled and nothing waits: a launch that runs when the pause begins or ends is recorded in part.

        Raises:
            UsageError: outside the session's body, or inside another pause.
        """
        if not self._within("paused"):
            yield
            return
        if self._paused:
            raise UsageError("prof.paused() inside prof.paused(): the session is paused already")
        try:
            try:
                with exclusive():
                    self._paused = self._was_paused = True
                    for backend in self._backends.values():
                        backend.disarm()
                    self._stalls.pause(True)
                yield
            finally:
                self._resume()
        finally:  # a signal may have come before the first one
            self._resume()

    def _resume(self) -> None:
        """End a pause."""
        with exclusive():
            if self._paused and STATE.active is self:
                for backend in self._backends.values():
                    backend.resume()
                self._stalls.pause(False)
            self._paused = False
