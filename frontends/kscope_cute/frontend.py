"""The frontend of CuTe DSL: owns the parts of the work and switches them on and off together.

What lives here: the class. What does not: the parts, and which CuTe DSL will do (__init__.py).
"""

from __future__ import annotations

from typing import Any

from kscope.capture.model import Problem
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.marks.grammar import Mark

from .compile import Pipeline
from .emit import place, read, tracing
from .load import Loading
from .select import Selected


class CuteFrontend(Frontend):
    """enable() raises UnsupportedError where the installed CuTe DSL lacks a hook point."""

    name = "cute"
    selects = frozenset({"kinds", "lines"})

    def __init__(self) -> None:
        self._selected = Selected()
        self._loading = Loading(self._selected.means)
        self._pipeline = Pipeline(self._loading.compiled, self._selected.sites)

    def enable(self, recording: Recording) -> None:
        """Kernels compiled from now on carry marks; CuTe's caches know them by their IR."""
        self._pipeline.check()
        self._loading.check()
        if recording.selection:
            self._selected.check()
        self._selected.install(recording.selection)
        self._pipeline.install(recording)
        self._loading.install()

    def disable(self) -> None:
        """Kernels compiled from now on are plain; every hook of kscope is removed."""
        self._selected.remove()
        self._loading.remove()
        self._pipeline.remove()

    def emit(self, mark: Mark, context: Any, value: Any = None, when: Any = None) -> bool:
        """Place a mark in the kernel that is being traced; False where CuTe traces none.
        Raises UsageError for a value that is no 32-bit scalar."""
        if not tracing():
            return False
        if self._pipeline.recording is not None:
            place(mark, value, self._pipeline.tag, when)
        return True

    def read(self, name: str, context: Any) -> Any:
        """A device helper's value in the kernel that is traced; None where CuTe traces none."""
        return read(name) if context is None and tracing() else None

    def begin(self) -> None:
        """Launches count from now on."""
        self._loading.begin()

    def problems(self) -> tuple[Problem, ...]:
        """What was launched since begin() and records nothing, as it was compiled before; functions in which nothing
        could be marked that is selected."""
        return *self._selected.problems(), *self._loading.problems()
