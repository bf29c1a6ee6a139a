"""Numba's simulator (NUMBA_ENABLE_CUDASIM=1): kernels that run in Python, a thread of the host for each of the grid's.

What lives here: the hooks that tell where a launch and its threads begin and end, while recording is enabled, device
helpers, and values as numbers of 32 bits. What does not: recording (the backend of kscope's own simulator does that).
"""

from __future__ import annotations

import threading
from time import perf_counter_ns
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from kscope.capture.model import Problem
from kscope.errors import UsageError
from kscope.instrument import registry
from kscope.instrument.hooks import Hook
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalogue
from kscope.instrument.selection.catalogue import Listed
from kscope.marks.grammar import Mark

from . import select
from .hook_points import check, module

_RANGES = {np.int32: (-(1 << 31), (1 << 31) - 1), np.uint32: (0, (1 << 32) - 1)}


class Simulated:
    """numba.cuda as it simulates."""

    def __init__(self) -> None:
        self._recording: Recording | None = None
        self._hooks: list[Hook] = []
        self._launch: Any = None
        self._own: dict[FunctionType, CodeType] = {}
        self._marking = threading.Lock()

    def enable(self, recording: Recording) -> None:
        """Raises UnsupportedError naming the missing hook point."""
        kernel = module("simulator.kernel")
        check(kernel, "FakeCUDAKernel", "BlockThread", "_get_kernel_context")
        check(kernel.FakeCUDAKernel, "__call__")
        check(kernel.BlockThread, "run")
        self._restore()
        self._recording = recording
        if not self._hooks:
            self._hooks = [
                Hook(kernel.FakeCUDAKernel, "__call__", self._called),
                Hook(kernel.BlockThread, "run", self._run),
            ]
        for hook in self._hooks:
            hook.install()

    def disable(self) -> None:
        """Inverse of enable()."""
        for hook in self._hooks:
            hook.remove()
        self._restore()
        self._recording = None

    def teach(self) -> None:
        """Python knows `with` already."""

    def lacks(self) -> str:
        return ""

    def begin(self) -> None:
        """Every simulated kernel records: there is nothing to forget."""

    def problems(self) -> tuple[Problem, ...]:
        """Every simulated kernel records."""
        return ()

    def emit(self, mark: Mark, value: Any, when: Any) -> bool:
        """Record a mark of the thread that runs; False where none does."""
        if self._launch is None:
            return False
        given = None if value is None or mark.act == "pin" else _word(mark, value)
        return bool(self._launch.mark(threading.current_thread(), mark, given, None if when is None else bool(when)))

    def read(self, name: str) -> Any:
        """A device helper's value in the simulated thread that runs, None where none does: there is one SM, and clocks
        count the host's nanoseconds."""
        thread: Any = threading.current_thread()
        if not isinstance(thread, module("simulator.kernel").BlockThread):
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

    def _called(self, call: Any, fake: Any, *args: Any) -> Any:
        launched = not (fake._device or module("simulator.kernel")._get_kernel_context())
        self._mark(fake.fn, launched)
        return self._launched(call, fake, args) if launched else call(fake, *args)

    def _mark(self, function: Any, kernel: bool) -> None:
        """Give a function in which something is selected the code with regions."""
        if self._recording is None or not self._recording.selection or not isinstance(function, FunctionType):
            return
        with self._marking:  # threads of a block call a device function at once
            if function in self._own:
                return
            asked = select.asked(function, self._recording.selection, lambda function: kernel)
            self._own[function] = function.__code__
            code = select.in_python(function, asked) if asked else None
            if code is not None:
                function.__code__ = code
                catalogue.note(Listed("numba", function.__name__, "simulated", tuple(asked.sites)))

    def _restore(self) -> None:
        """Give every function its own code again."""
        for function, code in self._own.items():
            function.__code__ = code
        self._own.clear()

    def _launched(self, call: Any, fake: Any, args: tuple[Any, ...]) -> Any:
        host: Any = registry.backend("sim")
        grid, block = (_three(dims) for dims in (fake.grid_dim or (), fake.block_dim or ()))
        name = str(getattr(fake.fn, "__name__", "?"))
        outer, self._launch = self._launch, host.crowd(name, fake.fn, grid, block, self._recording)
        try:
            return call(fake, *args)
        finally:
            self._launch.end()
            self._launch = outer

    def _run(self, run: Any, thread: Any) -> None:
        launch = self._launch
        if launch is None:
            run(thread)
            return
        launch.begin(thread, _axes(thread.blockIdx), _axes(thread.threadIdx))
        run(thread)
        if thread.exception is None:
            launch.leave(thread)


def _axes(at: Any) -> tuple[int, int, int]:
    return int(at.x), int(at.y), int(at.z)


def _three(dims: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*map(int, dims), 1, 1, 1)[:3]
    return x, y, z


def _word(mark: Mark, value: Any) -> Any:
    """A value as what a compiled kernel would record of it. Raises UsageError."""
    if isinstance(value, (float, np.floating)):
        return np.float32(value)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise UsageError(
            f"value= of kscope {mark.act} {mark.said} is {value!r}: a record holds 32 bits, "
            "an int32, uint32 or float32; pass one number, as np.int32(x) or np.float32(x)"
        )
    unsigned = isinstance(value, np.unsignedinteger) or (type(value) is int and 1 << 31 <= value < 1 << 32)
    kind = np.uint32 if unsigned else np.int32
    least, most = _RANGES[kind]
    return kind(min(max(int(value), least), most))
