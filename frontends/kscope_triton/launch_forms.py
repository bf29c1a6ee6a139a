"""Selects the form of a kernel that a launch runs: the marked one while a session records, else the plain one. Where a
program may launch a kernel later and kscope cannot exchange it (warmup(), triton.compile(), graphs that torch
captures), it gets the marked form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton.runtime.jit import KernelInterface

from kscope.instrument.hooks import Hook

from .threads import Threads
from .tuning import Tuning

REST = "kscope-rest"
"""Marks the keys in Triton's cache in memory of plain kernels whose launches a session records."""


class Forms:
    """State that selects the form of a launch, while recording is enabled.

    Args:
        changed: called when a decision that holds for all threads has changed.

    Attributes:
        tuning: the threads that time configurations, which run plain kernels always.
        returned: the threads that compile a kernel which is returned to the program.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.tuning = Tuning(changed)
        self.returned = Threads(changed)
        self._changed = changed
        self._recording, self._captures = False, 0
        self._warmup = Hook(KernelInterface, "warmup", self._warmed)

    def install(self) -> None:
        """Watch Triton's autotuner and warmup(); idempotent."""
        self.tuning.hooks.install()
        self._warmup.install()

    def remove(self) -> None:
        """Inverse of install(); no session records."""
        self.tuning.hooks.remove()
        self._warmup.remove()
        self._recording, self._captures = False, 0

    @property
    def resting(self) -> bool:
        """True if launches run plain kernels."""
        return not self._recording and not self._captures

    @property
    def capturing(self) -> bool:
        """True if any thread captures a graph."""
        return self._captures > 0

    def record(self, recording: bool) -> None:
        """Begin or end a session."""
        self._recording = recording
        self._changed()

    def capture(self, begins: bool) -> None:
        """Begin or end the capture of a graph, into which any thread may launch."""
        self._captures = max(0, self._captures + (1 if begins else -1))
        self._changed()

    def key(self, tag: str) -> str:
        """This thread's part of the key in memory. tag: that of marked kernels."""
        if self.tuning.here:
            return ""
        return REST if self.resting and not self.returned.here else tag

    def shared_key(self, tag: str) -> str:
        """The same where one key holds for all threads."""
        if self.tuning.anywhere:
            return ""
        return REST if self.resting and not self.returned.anywhere else tag

    def _warmed(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self.returned.running():
            return original(*args, **kwargs)
