"""The frontend of Triton and Gluon: owns the parts of the work and switches them on and off together."""

from __future__ import annotations

from typing import Any

from kscope.capture.model import Problem
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.marks.grammar import Mark

from .compile import Pipeline
from .declared import Spelling
from .emit import for_nvidia, place, read
from .inductor import Inductor
from .interpreted import INTERPRETED, Interpreted
from .load import Loading


class TritonFrontend(Frontend):
    """enable() raises UnsupportedError where the installed Triton lacks a hook point."""

    name = "triton"
    backend = "sim" if INTERPRETED else "cuda"
    selects = frozenset[Any]() if INTERPRETED else frozenset({"kinds", "lines"})

    def __init__(self) -> None:
        self._interpreted = Interpreted()
        self._pipeline = Pipeline()
        self._loading = Loading()
        self._inductor = Inductor()

    def enable(self, recording: Recording) -> None:
        """Kernels compiled from now on carry marks; they have cache keys of their own."""
        self._pipeline.check()
        self._loading.check()
        self._pipeline.install(recording)
        self._loading.install(recording)
        self._interpreted.install(recording)
        self._inductor.install(recording)

    def disable(self) -> None:
        """Kernels compiled from now on are plain; every hook of kscope is removed."""
        self._inductor.remove()
        self._interpreted.remove()
        self._loading.remove()
        self._pipeline.remove()

    def emit(self, mark: Mark, context: Any, value: Any = None, when: Any = None) -> bool:
        """Place a mark in the kernel that is being traced (`context` is its _semantic), or record it in
        the kernel that Triton's interpreter runs. Raises UsageError for a value that is no 32-bit scalar."""
        if context is None:
            return self._interpreted.emit(mark, value, when)
        if self._pipeline.recording is not None and for_nvidia(context):
            self._pipeline.placed(place(mark, context, value, when))
        return True

    def read(self, name: str, context: Any) -> Any:
        """A device helper's value: in the kernel that is traced, or in the one that Triton's interpreter runs."""
        return self._interpreted.read(name) if context is None else read(name, context)

    def spelling(self, *parts: object) -> list[Any]:
        """What Triton's cache keys must know of a scope that was declared outside of the kernel."""
        return [Spelling(parts)]

    def begin(self) -> None:
        """Launches count from now on."""
        self._loading.begin()

    def problems(self) -> tuple[Problem, ...]:
        """What was launched since begin() and records nothing: compiled plain, or with every mark removed."""
        return tuple(self._loading.problems)
