"""CuPy 14: regions in RawKernel, RawModule, cupyx.jit.rawkernel, ElementwiseKernel and ReductionKernel."""

from __future__ import annotations

from typing import Any

from kscope.capture.model import Problem
from kscope.errors import UnsupportedError
from kscope.instrument import registry
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.marks.grammar import Mark

from .. import assembling
from . import helpers
from .compile import NAME, Compiling
from .hook_points import cupy, runtime
from .jit import Jit
from .load import Loader

__all__ = ["CupyFrontend", "teach"]


class CupyFrontend(Frontend):
    """Raises UnsupportedError for a CuPy that lacks a hook point, or is built for AMD."""

    name = NAME
    selects = frozenset({"kinds", "lines"})

    def __init__(self) -> None:
        if runtime.is_hip:
            raise UnsupportedError(f"cupy {cupy.__version__} is built for ROCm; kscope records on NVIDIA GPUs")
        self._loader = Loader()
        self._compiling = Compiling(self._loader)
        self._jit = Jit()

    def enable(self, recording: Recording) -> None:
        """Kernels compiled from now on carry marks; those that are loaded plain are compiled again when launched."""
        self._check()
        self._compiling.install(recording)
        self._jit.install()
        self._loader.install(recording)

    def disable(self) -> None:
        """Kernels are plain from now on; every hook is removed, but those that teach() put in."""
        if self._loader.taught:
            self._compiling.install(None)
        else:
            self._jit.remove()
            self._compiling.remove()
        self._loader.remove()

    def teach(self) -> None:
        """See the function of this name."""
        self._check()
        if not self._loader.taught:
            self._loader.taught = True
            self._jit.install()
            if self._compiling.recording is None:
                self._compiling.install(None)

    def lacks(self) -> str:
        return assembling.lacking()

    def emit(self, mark: Mark, context: Any, value: Any = None, when: Any = None) -> bool:
        """Place a mark in the cupyx.jit kernel that is translated now. Raises UsageError for a value that is no
        32-bit number."""
        return context is None and self._jit.emit(mark, value, when)

    def read(self, name: str, context: Any) -> Any:
        """None: cupyx.jit translates device helpers where it is hooked. Raises UsageError where it is not, and asks."""
        if context is None:
            helpers.refuse(name)

    def begin(self) -> None:
        """Launches count from now on."""
        self._loader.begin()

    def problems(self) -> tuple[Problem, ...]:
        """Kernels that stay plain since enable(), and were launched since begin()."""
        return tuple(self._loader.problems)

    def _check(self) -> None:
        self._compiling.check()
        self._jit.check()
        self._loader.check()


def teach() -> None:
    """Let CuPy compile kernels with regions also where recording is not enabled: plain, as without them.

    CuPy finds <kscope.cuh> by itself from then on, and cupyx.jit passes over `with kscope.region(...)`. While
    recording is enabled it knows both without this. The hooks stay until the process ends.
    """
    found = registry.frontend(NAME)
    assert isinstance(found, CupyFrontend)
    found.teach()
