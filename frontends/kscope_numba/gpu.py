"""Compiled kernels: installs and removes the hooks of this package together, under Numba's compiler lock."""

from __future__ import annotations

from typing import Any

from kscope.capture.capture_data import LaunchCount
from kscope.capture.model import Problem
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.marks.grammar import Mark

from . import linking
from .bytecode import BytecodeHooks
from .compilation_context import CompilationContext
from .compile import CompilerHooks
from .evaluator import collect
from .hook_points import check, module
from .load import LoadHooks

_dispatcher: Any = module("dispatcher")
_LOCK = "global_compiler_lock"


class Target(Frontend):
    """numba.cuda compiling for a GPU. enable() and disable() wait for compilations in other threads.

    Kernels compiled while it is enabled have marks; those compiled before are recompiled at their next launch.
    """

    def __init__(self) -> None:
        self._bytecode = BytecodeHooks()
        self._loads = LoadHooks(self._bytecode.unmarked)
        self._compiler = CompilerHooks(self._bytecode.sites)
        self._context = CompilationContext()
        self._taught = False

    def enable(self, recording: Recording) -> None:
        """Raises UnsupportedError naming a missing hook point, before anything is changed."""
        check(_dispatcher, _LOCK)
        for hooks in (self._bytecode, self._compiler, self._loads, self._context):
            hooks.check()
        with getattr(_dispatcher, _LOCK):
            self._context.hooks.install()
            self._compiler.install(recording)
            self._bytecode.set_selection(recording.selection, self._context.is_kernel)
            self._bytecode.install(emit_marks=True)
            self._loads.install(recording)

    def disable(self) -> None:
        """Remove every hook except the one of teach(): kernels are plain from now on."""
        with getattr(_dispatcher, _LOCK):
            self._context.hooks.remove()
            self._compiler.remove()
            if self._taught:
                self._bytecode.install(emit_marks=False)
            else:
                self._bytecode.remove()
            self._loads.remove(self._taught)

    def teach(self) -> None:
        """Let Numba compile kernels with regions while recording is disabled, see teach() of the package."""
        self._bytecode.check()
        if not self._taught:
            self._taught = True
            if self._compiler.recording is None:
                self._bytecode.install(emit_marks=False)
                self._loads.remove(taught=True)

    def limitation(self) -> str:
        return linking.missing_ptxas()

    def begin(self) -> None:
        """Launches run kernels with marks from now on."""
        self._loads.begin()
        self._loads.forms.recording = True

    def end(self) -> None:
        """Launches run plain kernels from now on."""
        self._loads.forms.recording = False

    def launches(self) -> dict[int, LaunchCount]:
        """Launches of marked kernels since begin(), by kernel id, without those that a graph captured."""
        return self._loads.counts.by_kernel()

    def problems(self) -> tuple[Problem, ...]:
        """Kernels launched since begin() without recording, and functions where the selection matched nothing."""
        return *self._bytecode.problems(), *self._loads.problems

    def emit(self, mark: Mark, context: Any, value: Any = None, when: Any = None) -> bool:
        """Place a mark in the function that this thread rewrites."""
        return context is None and collect(mark, value, when)
