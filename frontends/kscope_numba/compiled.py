"""Kernels for a GPU: the hooks together.

What lives here: their order, and whether Numba was taught. What does not: any of them.
"""

from __future__ import annotations

from typing import Any

from kscope.capture.model import Problem
from kscope.instrument.recording import Recording
from kscope.marks.grammar import Mark

from . import linking
from .compile import Pipeline
from .functions import Functions
from .hook_points import check, module
from .load import Loader
from .located import Located
from .words import collect

_dispatcher: Any = module("dispatcher")
_LOCK = "global_compiler_lock"


class Compiled:
    """numba.cuda as it compiles for a GPU. What another thread compiles belongs to the state in which it began: states
    change when it is done."""

    def __init__(self) -> None:
        self._functions, self._loader = Functions(), Loader()
        self._pipeline = Pipeline(self._functions.sites)
        self._located = Located()
        self._taught = False

    def enable(self, recording: Recording) -> None:
        """Raises UnsupportedError naming a missing hook point; then nothing was changed."""
        check(_dispatcher, _LOCK)
        for part in (self._functions, self._pipeline, self._loader, self._located):
            part.check()
        with getattr(_dispatcher, _LOCK):
            self._located.install()
            self._pipeline.install(recording)
            self._functions.select(recording.selection, self._located.is_kernel)
            self._functions.install(placing=True)
            self._loader.install(recording)

    def disable(self) -> None:
        """Inverse of enable()."""
        with getattr(_dispatcher, _LOCK):
            self._located.remove()
            self._pipeline.remove()
            if self._taught:
                self._functions.install(placing=False)
            else:
                self._functions.remove()
            self._loader.remove(self._taught)

    def teach(self) -> None:
        """Regions are left out where recording is not enabled."""
        self._functions.check()
        if not self._taught:
            self._taught = True
            if self._pipeline.recording is None:
                self._functions.install(placing=False)
                self._loader.remove(taught=True)

    def read(self, name: str) -> Any:
        """None: kscope's device helpers are functions that Numba knows (helpers.py)."""
        return None

    def lacks(self) -> str:
        return linking.lacking()

    def begin(self) -> None:
        """Launches count from now on."""
        self._loader.begin()

    def problems(self) -> tuple[Problem, ...]:
        """Kernels that were launched and are not recorded, and functions in which nothing could be marked."""
        return *self._functions.problems(), *self._loader.problems

    def emit(self, mark: Mark, value: Any, when: Any) -> bool:
        """True while a function is rewritten on this thread."""
        return collect(mark, value, when)
