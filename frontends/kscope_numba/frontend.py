"""The Numba frontend: delegates to numba.cuda's GPU target or to its simulator."""

from __future__ import annotations

from typing import Any

from kscope.capture.model import LaunchCount, Problem
from kscope.instrument import registry
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.marks.grammar import Mark

from . import hook_points

NAME = "numba"


class NumbaFrontend(Frontend):
    """Regions in Numba CUDA kernels, on a GPU or in Numba's simulator.

    Raises:
        UnsupportedError: the installed numba-cuda is too old or lacks a hook point.
    """

    name = NAME
    selects = frozenset({"kinds", "lines"})
    backend = "sim" if hook_points.SIMULATED else "cuda"

    def __init__(self) -> None:
        hook_points.version()
        self._target: Any
        if hook_points.SIMULATED:
            from .simulator import SimulatorTarget

            self._target = SimulatorTarget()
        else:
            from .gpu import GpuTarget

            self._target = GpuTarget()

    def enable(self, recording: Recording) -> None:
        """Mark kernels compiled from now on; kernels compiled before are recompiled at their next launch."""
        self._target.enable(recording)

    def disable(self) -> None:
        """Remove every hook except the one of teach(): kernels are plain from now on."""
        self._target.disable()

    def teach(self) -> None:
        """Let Numba compile kernels with regions while recording is disabled, see teach() of the package."""
        self._target.teach()

    def emit(self, mark: Mark, context: Any, value: Any = None, when: Any = None) -> bool:
        """Place a mark in the function being rewritten, or record it for the current simulated thread."""
        return context is None and bool(self._target.emit(mark, value, when))

    def read(self, name: str, context: Any) -> Any:
        """A device helper's value for the current simulated thread. Compiled kernels use helpers.py instead."""
        return self._target.read(name) if context is None else None

    def limitation(self) -> str:
        return str(self._target.limitation())

    def begin(self) -> None:
        """Launches run kernels with marks from now on."""
        self._target.begin()

    def end(self) -> None:
        """Launches run plain kernels from now on."""
        self._target.end()

    def launches(self) -> dict[int, LaunchCount]:
        """Launches of marked kernels since begin(), by kernel id, without those that a graph captured."""
        found: dict[int, LaunchCount] = self._target.launches()
        return found

    def problems(self) -> tuple[Problem, ...]:
        """Kernels launched since begin() without recording, and functions where the selection matched nothing."""
        found: tuple[Problem, ...] = self._target.problems()
        return found


def teach() -> None:
    """Let Numba compile kernels with regions while recording is disabled: regions are dropped.

    The hook stays until the process ends. If kscope is installed, Numba calls this through its extension entry point
    before it compiles the first kernel. If kscope is only on the path, call it once.

    Raises:
        UnsupportedError: the installed numba-cuda lacks a hook point.
    """
    frontend = registry.frontend(NAME)
    assert isinstance(frontend, NumbaFrontend)
    frontend.teach()


def init() -> None:
    """Numba's entry point ``numba_cuda_extensions``."""
    teach()
