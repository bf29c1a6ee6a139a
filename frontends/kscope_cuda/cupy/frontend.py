"""The CuPy frontend: installs and removes the hooks of this package together."""

from __future__ import annotations

from typing import Any

from kscope.capture.capture_data import LaunchCount
from kscope.capture.model import Problem
from kscope.errors import UnsupportedError
from kscope.instrument import registry
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.marks.grammar import Mark

from .. import assembler
from . import helpers
from .compile import NAME, CompilerHooks
from .emit import JitHooks
from .hook_points import cupy, runtime
from .load import LoaderHooks


class CupyFrontend(Frontend):
    """Regions in CuPy kernels. enable() raises UnsupportedError if CuPy lacks a hook point."""

    name = NAME
    selects = frozenset({"kinds", "lines"})

    def __init__(self) -> None:
        if runtime.is_hip:
            raise UnsupportedError(f"cupy {cupy.__version__} is built for ROCm; kscope records on NVIDIA GPUs")
        self._loader = LoaderHooks()
        self._compiler = CompilerHooks(self._loader)
        self._jit = JitHooks()

    def enable(self, recording: Recording) -> None:
        """Mark kernels compiled from now on; kernels that were loaded plain are compiled again when launched. Waits for
        compilations in other threads.
        """
        self._check()
        with self._loader.lock:
            self._compiler.install(recording)
            self._jit.install()
            self._loader.install(recording)

    def disable(self) -> None:
        """Remove every hook except those of teach(): kernels compiled from now on are plain."""
        with self._loader.lock:
            if self._loader.taught:
                self._compiler.install(None)
            else:
                self._jit.remove()
                self._compiler.remove()
            self._loader.remove()

    def teach(self) -> None:
        """See teach() of this module."""
        self._check()
        if not self._loader.taught:
            self._loader.taught = True
            self._jit.install()
            if self._compiler.recording is None:
                self._compiler.install(None)

    def limitation(self) -> str:
        return assembler.missing()

    def emit(self, mark: Mark, context: Any, value: Any = None, when: Any = None) -> bool:
        """Place a mark in the cupyx.jit kernel being translated; False if none is. Raises UsageError for other than
        32-bit values."""
        return context is None and self._jit.emit(mark, value, when)

    def read(self, name: str, context: Any) -> Any:
        """None: the hooks translate device helpers. Raises UsageError in a cupyx.jit kernel without hooks."""
        if context is None:
            helpers.refuse(name)

    def begin(self) -> None:
        """Launches run the form with marks from now on."""
        self._loader.begin()
        self._loader.launches.recording = True

    def end(self) -> None:
        """Launches run plain from now on."""
        self._loader.launches.recording = False

    def launches(self) -> dict[int, LaunchCount]:
        """Launches of kernels compiled from source since begin(), by kernel id, without those that a graph captured."""
        return self._loader.launches.counts.by_kernel()

    def problems(self) -> tuple[Problem, ...]:
        """Kernels launched since begin() that ran plain, because they cannot be replaced or because of their grid."""
        return tuple(self._loader.problems)

    def _check(self) -> None:
        self._compiler.check()
        self._jit.check()
        self._loader.check()


def teach() -> None:
    """Let CuPy compile kernels with regions while recording is disabled, too.

    From now on CuPy finds <kscope.cuh>, and cupyx.jit accepts ``with kscope.region(...)`` and device helpers, until the
    process ends. While recording is enabled, it does so without this call.

    Raises:
        UnsupportedError: CuPy lacks a hook point.
    """
    frontend = registry.frontend(NAME)
    assert isinstance(frontend, CupyFrontend)
    frontend.teach()
