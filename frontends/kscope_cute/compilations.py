"""Waits for compilations in other threads, so that each one begins and ends with the same recording."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from types import CodeType, FrameType

from cutlass.base_dsl import dsl as cute_dsl

from . import hook_points

_TRACE = "generate_mlir"
_TURN_S, _PATIENCE_S = 0.01, 60.0
"""How often a wait looks, and how long it lasts at most: a compilation may itself wait for this thread."""


def check() -> None:
    """Raises UnsupportedError if CuTe's function that traces and compiles is missing."""
    hook_points.check(cute_dsl.BaseDSL, _TRACE, "base_dsl.dsl.BaseDSL")


def wait_for_others() -> None:
    """Return when no other thread traces or compiles."""
    code: CodeType = vars(cute_dsl.BaseDSL)[_TRACE].__code__
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until and any(code is one for one in _of_others()):
        time.sleep(_TURN_S)


def _of_others() -> Iterator[CodeType]:
    """The code on the stacks of all threads but this one."""
    frames: dict[int, FrameType] = vars(sys)["_current_frames"]()
    for thread, frame in frames.items():
        at: FrameType | None = frame
        while at is not None and thread != threading.get_ident():
            yield at.f_code
            at = at.f_back
