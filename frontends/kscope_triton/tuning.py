"""Autotuning: the launches that time configurations run plain kernels and record nothing.

So the timings, and the configuration that they select, are those of the program without kscope, and the benchmark's
hundreds of launches do not fill the pool. The selected configuration is compiled with marks when it is launched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from triton.runtime.autotuner import Autotuner

from kscope.instrument.hooks import Hook

_HOOKED = ("_bench", "check_disk_cache")
"""Times one configuration; computes the key of the timings on disk, which plain runs share."""


class Tuning:
    """Which threads time configurations.

    Args:
        changed: called when the first thread begins, and when the last one ends.

    Attributes:
        launches: launches by those threads.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.launches = 0
        self._changed = changed
        self._lock = threading.Lock()
        self._threads: dict[int, int] = {}  # thread -> depth
        self._hooks = [Hook(Autotuner, name, self._timed) for name in _HOOKED if hasattr(Autotuner, name)]

    def install(self) -> None:
        """Watch Triton's autotuner; idempotent."""
        for hook in self._hooks:
            hook.install()

    def remove(self) -> None:
        """Inverse of install()."""
        for hook in self._hooks:
            hook.remove()

    @property
    def anywhere(self) -> bool:
        """Whether any thread times a configuration."""
        return bool(self._threads)

    @property
    def here(self) -> bool:
        """Whether this thread does. Read at every launch."""
        return bool(self._threads) and threading.get_ident() in self._threads

    @contextmanager
    def running(self) -> Generator[None, None, None]:
        """What this thread compiles and launches in the body times configurations."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, by: int) -> None:
        thread = threading.get_ident()
        with self._lock:
            before = self.anywhere
            depth = self._threads.pop(thread, 0) + by
            if depth:
                self._threads[thread] = depth
            if self.anywhere != before:
                self._changed()

    def _timed(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self.running():
            return original(*args, **kwargs)
