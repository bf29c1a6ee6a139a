"""The CuTe DSL frontend: installs and removes the hooks of this package together."""

from __future__ import annotations

from typing import Any

from kscope.capture.model import Problem
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.marks.grammar import Mark

from . import compilations
from .compile import CompilerHooks
from .emit import emit_mark, read, tracing
from .library_caches import LibraryCaches
from .load import LaunchHooks
from .select import SelectionHooks


class CuteFrontend(Frontend):
    """Regions in CuTe DSL kernels. enable() raises UnsupportedError if the CuTe DSL lacks a hook point."""

    name = "cute"
    selects = frozenset({"kinds", "lines"})

    def __init__(self) -> None:
        self._selection = SelectionHooks()
        self._library_caches = LibraryCaches()
        self._launches = LaunchHooks(self._selection.touches, self._library_caches.functions)
        self._compiler = CompilerHooks(
            self._launches.module_compiled,
            self._launches.traced_without_marks,
            self._selection.sites,
            self._launches.forms.compiling,
        )

    def enable(self, recording: Recording) -> None:
        """Mark kernels compiled from now on; CuTe's caches distinguish them by their IR.

        Waits for compilations in other threads.
        """
        compilations.check()
        self._compiler.check()
        self._launches.check()
        if recording.selection:
            self._selection.check()
        with compilations.changing():
            self._selection.install(recording.selection)
            self._compiler.install(recording)
            self._launches.install(self._compiler.options)
            self._library_caches.use(self._compiler.tag)

    def disable(self) -> None:
        """Remove every hook: kernels compiled from now on are plain. Waits for compilations in other threads."""
        with compilations.changing():
            self._library_caches.use("")
            self._selection.remove()
            self._launches.remove()
            self._compiler.remove()

    def emit(self, mark: Mark, context: Any, value: Any = None, when: Any = None) -> bool:
        """Place a mark in the kernel being traced; False if none is.

        Raises UsageError for values of other than 32 or 64 bits.
        """
        if not tracing():
            return False
        if self._compiler.recording is not None and not compilations.began_plain():
            emit_mark(mark, value, self._compiler.tag, when)
        return True

    def read(self, name: str, context: Any) -> Any:
        """A device helper's value in the kernel being traced; None if none is."""
        return read(name) if context is None and tracing() else None

    def begin(self) -> None:
        """Launches run functions with marks from now on."""
        self._launches.begin()
        self._launches.forms.recording = True

    def end(self) -> None:
        """Launches run plain functions from now on."""
        self._launches.forms.recording = False

    def problems(self) -> tuple[Problem, ...]:
        """Launches since begin() without marks or with other options, and code that the selection cannot mark."""
        return *self._selection.problems(), *self._launches.problems()
