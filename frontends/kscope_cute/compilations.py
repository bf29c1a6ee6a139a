"""Ensures that each compilation begins and ends with the same recording, regardless of other threads."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import CodeType
from typing import Any, TypeVar

from cutlass.base_dsl import dsl as cute_dsl

from kscope.util import thread_stacks

from . import hook_points

R = TypeVar("R")
TRACE = "generate_mlir"
_PREPARE, _CALL = "_preprocess_and_replace_code", "_func"
_POLL_S, _COMPILE_TIMEOUT_S = 0.01, 60.0
"""Poll interval and timeout of a change: a compilation may itself wait for this thread."""


def _code(name: str) -> CodeType | None:
    found = getattr(inspect.unwrap(getattr(cute_dsl.BaseDSL, name, None)), "__code__", None)  # type: ignore[arg-type]  # of None: None
    return found if isinstance(found, CodeType) else None


_TRACES = _code(TRACE)
_RUNS = tuple(code for code in (_TRACES, _code(_CALL)) if code is not None)
"""Code on the stack of a thread that compiles, or is about to."""

_thread = threading.local()  # hooked: this thread compiles, and began with the hooks
_turn = threading.Condition()
_changes = 0
_waiting: set[int] = set()  # threads that compile when the change has ended


def check() -> None:
    """Raises UnsupportedError if CuTe's function that traces and compiles is missing."""
    hook_points.check(cute_dsl.BaseDSL, TRACE, "base_dsl.dsl.BaseDSL")


def compile_unchanged(compile: Callable[..., R], dsl: Any, function: Any, *args: Any, **kwargs: Any) -> R:
    """Call CuTe's generate_mlir() when no other thread changes the state.

    CuTe traces a function, looks its IR up in caches and compiles it inside this one call. The state changes only while
    no other thread is in it: a change waits for threads inside, and threads that arrive later wait for the change.

    Args:
        compile: generate_mlir().
        dsl: its object.
        function: the host function; preprocessed again if the state has changed since CuTe did.
        args, kwargs: of generate_mlir().
    """
    if is_hooked():
        return compile(dsl, function, *args, **kwargs)
    here = threading.get_ident()
    with _turn:
        _waiting.add(here)
        try:
            while _changes:
                _turn.wait()
        finally:
            _waiting.discard(here)
        _thread.hooked = True
    try:
        getattr(cute_dsl.BaseDSL, _PREPARE, lambda function: None)(function)
        return compile(dsl, function, *args, **kwargs)
    finally:
        _thread.hooked = False


def is_hooked() -> bool:
    """True if this thread is in compile_unchanged()."""
    return getattr(_thread, "hooked", False)


def began_plain() -> bool:
    """True if this thread compiles and began before the hooks were installed."""
    return not is_hooked() and any(frame.f_code is _TRACES for frame in thread_stacks.own())


@contextmanager
def changing() -> Generator[None]:
    """A context manager for a change of the state: begins when no other thread compiles."""
    global _changes
    with _turn:
        _changes += 1
    try:
        until = time.monotonic() + _COMPILE_TIMEOUT_S
        while time.monotonic() < until and thread_stacks.threads(_RUNS) - _waiting - {threading.get_ident()}:
            time.sleep(_POLL_S)
        yield
    finally:
        with _turn:
            _changes -= 1
            _turn.notify_all()
