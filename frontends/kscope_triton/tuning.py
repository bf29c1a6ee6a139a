"""Autotuning: launches that time configurations run plain kernels and record nothing, so timings and the selected
configuration are those of the program without kscope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton.runtime.autotuner import Autotuner

from kscope.instrument.hooks import Hook, Hooks

from .threads import Threads

_HOOKED = ("_bench", "check_disk_cache")
"""Times one configuration; computes the key of the timings on disk, which plain runs share."""


class Tuning(Threads):
    """The threads that time configurations.

    Args:
        changed: called when the first thread begins, and when the last one ends.

    Attributes:
        launches: launches by those threads.
        hooks: those on Triton's autotuner.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__(changed)
        self.launches = 0
        self.hooks = Hooks(*(Hook(Autotuner, name, self._timed) for name in _HOOKED if hasattr(Autotuner, name)))

    def _timed(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self.running():
            return original(*args, **kwargs)
