"""Waits for compilations in other threads, so that each one begins and ends with the same recording."""

from __future__ import annotations

import time
from types import CodeType

from cutlass.base_dsl import dsl as cute_dsl

from kscope.util import stacks

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
    while time.monotonic() < until and stacks.running((code,), elsewhere=True):
        time.sleep(_TURN_S)
