"""The frontend of Triton and Gluon: installs and removes its hooks together."""

from __future__ import annotations

from typing import Any

from kscope.capture.capture_data import LaunchCount
from kscope.capture.model import Problem
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.marks.grammar import Mark

from .compile import Pipeline
from .declared_scopes import ScopeKey
from .emit import for_nvidia, place, read
from .inductor import Inductor
from .interpreted import INTERPRETED, Interpreted
from .launch_forms import Forms
from .load import Loading
from .prepare import Preparation


class TritonFrontend(Frontend):
    """enable() raises UnsupportedError if the installed Triton lacks a hook point."""

    name = "triton"
    backend = "sim" if INTERPRETED else "cuda"
    selects = frozenset[Any]() if INTERPRETED else frozenset({"kinds", "lines"})

    def __init__(self) -> None:
        self._interpreted = Interpreted()
        self._forms = Forms(self._switch)
        self._pipeline = Pipeline(self._forms)
        self._preparation = Preparation(self._forms, self._pipeline.tag)
        self._loading = Loading(self._forms, self._load_prepared, self._preparation.same_attributes)
        self._inductor = Inductor(self._forms, self._pipeline.unmarked)

    def enable(self, recording: Recording) -> None:
        """Compile kernels with marks from now on, under separate cache keys."""
        self._pipeline.check()
        self._loading.check()
        self._forms.install()
        self._pipeline.install(recording)
        self._preparation.install()
        self._loading.install(recording)
        self._interpreted.install(recording)
        self._inductor.install(recording)

    def disable(self) -> None:
        """Remove every hook; kernels compiled from now on are plain."""
        self._inductor.remove()
        self._interpreted.remove()
        self._loading.remove()
        self._preparation.remove()
        self._pipeline.remove()
        self._forms.remove()

    def emit(self, mark: Mark, context: Any, value: Any = None, when: Any = None) -> bool:
        """Emit a mark into the traced kernel (`context` is its _semantic), or record it if `context` is None and
        Triton's interpreter runs the kernel. Raises UsageError for a value that is not a scalar of 32 or 64 bits."""
        if context is None:
            return self._interpreted.emit(mark, value, when)
        if for_nvidia(context) and self._pipeline.marks(context.builder.options):
            self._pipeline.placed(place(mark, context, value, when))
        return True

    def read(self, name: str, context: Any) -> Any:
        """A device helper's value in the traced or interpreted kernel."""
        return self._interpreted.read(name) if context is None else read(name, context)

    def cache_key(self, *parts: object) -> list[Any]:
        """Cache-key parts of a scope declared outside of the kernel."""
        return [ScopeKey(parts)]

    def prepare(self) -> None:
        """Wait for the kernels that are compiled in the background."""
        self._preparation.finish()

    def begin(self) -> None:
        """Launches run marked kernels from now on, and are reported."""
        self._preparation.load()
        self._loading.begin()
        self._forms.record(True)

    def end(self) -> None:
        """Launches run plain kernels from now on."""
        self._forms.record(False)

    def _switch(self) -> None:
        self._pipeline.switch_mode()
        self._loading.switch()

    def _load_prepared(self) -> None:
        """The driver may refuse to load a module during a capture."""
        self._preparation.finish()
        self._preparation.load()

    def launches(self) -> dict[int, LaunchCount]:
        """Launches of marked kernels since begin(), by kernel id, and those by replays of torch's graphs."""
        return self._loading.counts.by_kernel()

    def tuning_launches(self) -> int:
        """Launches since begin() by which Triton's autotuner or Inductor's timed configurations."""
        return self._forms.tuning.launches

    def problems(self) -> tuple[Problem, ...]:
        """Kernels launched since begin() that record nothing: compiled plain, or with all marks removed."""
        return tuple(self._loading.problems)
