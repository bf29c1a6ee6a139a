"""Triton's interpreter (TRITON_INTERPRET=1): kernels that run as plain Python, block after block.

Hooks report each launch and each block to the simulator, which records them.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np
import triton
from triton import knobs
from triton.language import core as tl

from kscope.errors import UnsupportedError
from kscope.instrument import registry
from kscope.instrument.backend import BlockLaunch
from kscope.instrument.hooks import Hooks
from kscope.instrument.recording import Recording
from kscope.language.mistakes import refuse_mistakes
from kscope.marks.constants import with_constant
from kscope.marks.grammar import Mark
from kscope.ptx import READINGS
from kscope.util import thread_stacks

from .emit import TYPES, predicate, scalar
from .functions import plain_or_jit

INTERPRETED: bool = bool(knobs.runtime.interpret)
"""True if this process interprets jit functions. Triton reads its setting when a function is defined."""
_WORDS: dict[str, Any] = {"i32": np.int32, "u32": np.uint32, "i64": np.int64}
_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "i32": np.int32, "u32": np.uint32, "f32": np.float32, "i64": np.int64, "u64": np.uint64, "f64": np.float64,
}  # fmt: skip


class Interpreted:
    """The interpreter's hooks, and the launch in progress."""

    def __init__(self) -> None:
        self._recording: Recording | None = None
        self._launch: BlockLaunch | None = None
        self._kernel: Callable[..., Any] | None = None
        self._hooks = Hooks()

    def install(self, recording: Recording) -> None:
        """Install the hooks; does nothing if kernels are compiled.

        Raises:
            UnsupportedError: this Triton's interpreter lacks a hook point.
        """
        if not INTERPRETED:
            return
        from triton.runtime import interpreter

        executor: Any = getattr(interpreter, "GridExecutor", None)
        builder: Any = getattr(interpreter, "interpreter_builder", None)
        if not callable(executor) or not hasattr(builder, "set_grid_idx"):
            raise UnsupportedError(
                f"triton {triton.__version__} has no interpreter.GridExecutor and interpreter_builder.set_grid_idx, "
                "which kscope needs to record interpreted kernels"
            )
        self._recording = recording
        self._hooks.add(executor, "__call__", self._launched)
        self._hooks.add(builder, "set_grid_idx", self._block)

    def remove(self) -> None:
        """Inverse of install()."""
        self._recording = None
        self._hooks.remove()

    def emit(self, mark: Mark, value: Any, when: Any = None) -> bool:
        """Record a mark of the block being interpreted; False outside a kernel."""
        if self._launch is None:
            return False
        if mark.act != "pin":  # Python does not reorder statements
            self._launch.mark(mark, _number(mark, value), None if when is None else _holds(mark, when))
        return True

    def read(self, name: str) -> Any:
        """A device helper's value in the block being interpreted; None outside a kernel.

        A program counts as one thread on SM 0, and clocks count the host's nanoseconds.
        """
        if not INTERPRETED:
            return None
        from triton.runtime.interpreter import TensorHandle
        from triton.runtime.interpreter import interpreter_builder as builder

        place: Any = builder.grid_idx  # stays set after the last block
        if place is None or not _interpreting():
            return None
        kind = TYPES[READINGS[name].type]
        value = 0
        if name == "block_id":
            (x, y, z), (nx, ny, _) = place, builder.grid_dim
            value = x + nx * (y + ny * z)
        elif READINGS[name].volatile and name != "smid":
            value = perf_counter_ns() & (1 << kind.primitive_bitwidth) - 1
        number = np.array([value], _WORDS[READINGS[name].type])
        return tl.tensor(TensorHandle(number, kind), kind)

    def _launched(self, original: Callable[..., Any], executor: Any, *args: Any, **kwargs: Any) -> Any:
        """Hook around a launch. Its blocks arrive through _block()."""
        outer, self._launch = self._launch, None
        self._kernel = executor.fn
        if self._recording is not None:
            refuse_mistakes(executor.fn, plain_or_jit)
        try:
            result = original(executor, *args, **kwargs)
        except BaseException:
            if self._launch is not None:
                self._launch.abandon()
            raise
        else:
            if self._launch is not None:
                self._launch.end()
            return result
        finally:
            self._launch = outer

    def _block(self, original: Callable[..., Any], x: int, y: int, z: int) -> None:
        from triton.runtime.interpreter import interpreter_builder as builder

        original(x, y, z)
        recording = self._recording  # read once: another thread may end the session
        if self._launch is None and recording is not None:
            name, kernel = getattr(self._kernel, "__name__", "?"), self._kernel
            assert kernel is not None, "_launched() sets it before the first block"
            self._launch = registry.simulator().launch_by_block(name, kernel, tuple(builder.grid_dim), recording)
        if self._launch is not None:
            self._launch.block((x, y, z))


def _interpreting() -> bool:
    """True if a kernel is on this thread's stack."""
    from triton.runtime import interpreter

    return any(frame.f_code.co_filename == interpreter.__file__ for frame in thread_stacks.own())


def _holds(mark: Mark, when: Any) -> bool:
    """A predicate as a bool. Raises UsageError as in compiled kernels."""
    return when if isinstance(when, bool) else bool(np.asarray(predicate(mark, when).handle.data).reshape(-1)[0])


def _number(mark: Mark, value: Any) -> Any:
    """A value as a number that the simulator records. Raises UsageError as in compiled kernels."""
    if isinstance(value, tl.constexpr):
        value = value.value
    if value is None:
        return None
    if with_constant(mark, value) is not None:
        return value
    kind, _ = scalar(mark, value)
    return _NUMBERS[kind](np.asarray(value.handle.data).reshape(-1)[0])
