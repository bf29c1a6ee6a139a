"""Numba CUDA, numba-cuda 0.24 and later: `with kscope.region("load"):` in kernels, device functions and the simulator.

What lives here: the frontend, which owns the parts of the work: rewriting functions (functions.py), lowering their
PTX (pipeline.py), and what Numba keeps (loading.py); or Numba's simulator (simulated.py). What does not:
instructions (kscope/ptx).
"""

from __future__ import annotations

from typing import Any

from kscope.capture.model import Problem
from kscope.instrument import registry
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.marks.grammar import Mark

from . import hook_points

__all__ = ["NumbaFrontend", "init", "teach"]

NAME = "numba"


class NumbaFrontend(Frontend):
    """Raises UnsupportedError for a numba-cuda that is too old, or lacks a hook point."""

    name = NAME
    selects = frozenset({"kinds", "lines"})
    backend = "sim" if hook_points.SIMULATED else "cuda"

    def __init__(self) -> None:
        hook_points.version()
        self._parts: Any
        if hook_points.SIMULATED:
            from .simulated import Simulated

            self._parts = Simulated()
        else:
            from .compiled import Compiled

            self._parts = Compiled()

    def enable(self, recording: Recording) -> None:
        """Kernels compiled from now on carry marks; those that were compiled plain are compiled again when launched."""
        self._parts.enable(recording)

    def disable(self) -> None:
        """Kernels are plain from now on; every hook is removed, but the one that teach() put in."""
        self._parts.disable()

    def teach(self) -> None:
        """See the function of this name."""
        self._parts.teach()

    def emit(self, mark: Mark, context: Any, value: Any = None, when: Any = None) -> bool:
        """Place a mark in the function that is rewritten now, or in the simulated thread that runs."""
        return context is None and bool(self._parts.emit(mark, value, when))

    def read(self, name: str, context: Any) -> Any:
        """A device helper's value in the simulated thread that runs. Numba compiles the words by rules of their own."""
        return self._parts.read(name) if context is None else None

    def lacks(self) -> str:
        return str(self._parts.lacks())

    def begin(self) -> None:
        """Launches count from now on."""
        self._parts.begin()

    def problems(self) -> tuple[Problem, ...]:
        """Kernels that were launched since begin() and are not recorded, and functions in which nothing could be marked
        that is selected."""
        found: tuple[Problem, ...] = self._parts.problems()
        return found


def teach() -> None:
    """Let Numba compile kernels with regions also where recording is not enabled: plain, as without them.

    The hook stays until the process ends. Where kscope is installed, Numba calls this by itself before it compiles its
    first kernel (its entry point for extensions); where kscope is only on the path, call it once.
    """
    found = registry.frontend(NAME)
    assert isinstance(found, NumbaFrontend)
    found.teach()


def init() -> None:
    """Numba's entry point ``numba_cuda_extensions``."""
    teach()
