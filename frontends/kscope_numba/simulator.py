"""Numba's simulator (NUMBA_ENABLE_CUDASIM=1) runs kernels in Python, one host thread per GPU thread.

Hooks report each launch and each thread to kscope's simulator, which records them.
"""

from __future__ import annotations

import threading
from time import perf_counter_ns
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from kscope.instrument import registry
from kscope.instrument.backend import ThreadLaunch
from kscope.instrument.frontend import Frontend
from kscope.instrument.hooks import Hooks
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalog
from kscope.instrument.selection.catalog import KernelSites
from kscope.marks.constants import constant
from kscope.marks.grammar import Mark
from kscope.marks.refusals import value_refused

from . import select
from .hook_points import check, module


class Target(Frontend):
    """The hooks of numba.cuda's simulator, and the launch in progress."""

    def __init__(self) -> None:
        self._recording: Recording | None = None
        self._hooks = Hooks()
        self._launch: ThreadLaunch | None = None
        self._original: dict[FunctionType, CodeType] = {}
        self._marking = threading.Lock()

    def enable(self, recording: Recording) -> None:
        """Install the hooks. Raises UnsupportedError naming a missing hook point."""
        kernel = module("simulator.kernel")
        check(kernel, "FakeCUDAKernel", "BlockThread", "_get_kernel_context")
        check(kernel.FakeCUDAKernel, "__call__")
        check(kernel.BlockThread, "run")
        self._restore()
        self._recording = recording
        self._hooks.add(kernel.FakeCUDAKernel, "__call__", self._call)
        self._hooks.add(kernel.BlockThread, "run", self._run)

    def disable(self) -> None:
        """Remove the hooks."""
        self._hooks.remove()
        self._recording = None
        self._restore()

    def teach(self) -> None:
        """No-op: Python runs `with` itself."""

    def emit(self, mark: Mark, context: Any, value: Any = None, when: Any = None) -> bool:
        """Record a mark of the current simulated thread; False outside a kernel."""
        if context is not None or self._launch is None:
            return False
        recorded = None if value is None or mark.act == "pin" else _recorded(mark, value)
        return self._launch.mark(threading.current_thread(), mark, recorded, None if when is None else bool(when))

    def read(self, name: str, context: Any) -> Any:
        """A device helper's value for the current simulated thread; None outside a kernel.

        There is one SM, and clocks count the host's nanoseconds.
        """
        thread: Any = threading.current_thread()
        if context is not None or not isinstance(thread, module("simulator.kernel").BlockThread):
            return None
        if name in ("clock64", "globaltimer"):
            return np.int64(perf_counter_ns())
        if name == "clock":
            return np.uint32(perf_counter_ns() & 0xFFFFFFFF)
        context = module("simulator.kernel")._get_kernel_context()
        (x, y, z), (nx, ny, _) = _axes(thread.threadIdx), _axes(context.blockDim)
        linear = x + nx * (y + ny * z)
        (x, y, z), (nx, ny, _) = _axes(thread.blockIdx), _axes(context.gridDim)
        block = x + nx * (y + ny * z)
        return np.int32({"smid": 0, "warp_id": linear // 32, "lane_id": linear % 32, "block_id": block}[name])

    def _call(self, original: Any, fake: Any, *args: Any) -> Any:
        launched = not (fake._device or module("simulator.kernel")._get_kernel_context())
        self._mark(fake.fn, launched)
        return self._record_launch(original, fake, args) if launched else original(fake, *args)

    def _mark(self, function: Any, is_kernel: bool) -> None:
        """Replace a function's code with code that has the selected regions."""
        recording = self._recording  # read once: another thread may end the session
        if recording is None or not recording.selection or not isinstance(function, FunctionType):
            return
        with self._marking:  # threads of a block may call a device function concurrently
            if function in self._original or self._recording is not recording:
                return
            selection = select.selection_for(function, recording.selection, lambda function: is_kernel)
            self._original[function] = function.__code__
            code = select.marked_code(function, selection) if selection else None
            if code is not None:
                function.__code__ = code
                catalog.add(KernelSites("numba", function.__name__, "simulated", tuple(selection.sites)))

    def _restore(self) -> None:
        """Restore the original code of every function."""
        with self._marking:
            for function, code in self._original.items():
                function.__code__ = code
            self._original.clear()

    def _record_launch(self, original: Any, fake: Any, args: tuple[Any, ...]) -> Any:
        recording = self._recording
        if recording is None:  # another thread has just ended the session
            return original(fake, *args)
        grid, block = (_three(dims) for dims in (fake.grid_dim or (), fake.block_dim or ()))
        name = str(getattr(fake.fn, "__name__", "?"))
        launch = registry.simulator().launch_by_thread(name, fake.fn, grid, block, recording)
        outer, self._launch = self._launch, launch
        try:
            return original(fake, *args)
        finally:
            launch.end()
            self._launch = outer

    def _run(self, original: Any, thread: Any) -> None:
        launch = self._launch
        if launch is None:
            original(thread)
            return
        launch.begin(thread, _axes(thread.blockIdx), _axes(thread.threadIdx))
        original(thread)
        if thread.exception is None:
            launch.leave(thread)


def _axes(at: Any) -> tuple[int, int, int]:
    return int(at.x), int(at.y), int(at.z)


def _three(dims: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*map(int, dims), 1, 1, 1)[:3]
    return x, y, z


def _recorded(mark: Mark, value: Any) -> Any:
    """The number as a compiled kernel would record it, where Python's have 64 bits. Raises UsageError."""
    if constant(mark, value) is None:
        raise value_refused(mark, repr(value), "one number, as np.int32(x) or np.float32(x)")
    if isinstance(value, np.generic):
        return value
    return np.float64(value) if isinstance(value, float) else value
