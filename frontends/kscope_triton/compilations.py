"""Compilations in progress, read from the stacks of this process's threads. Triton computes a kernel's cache keys long
before it compiles, and another thread may enable or disable recording in between; a compilation must end with the
recording that it began with.
"""

from __future__ import annotations

import inspect
from types import CodeType
from typing import Any

from triton.compiler import compiler
from triton.runtime.jit import JITFunction

from kscope.util import thread_stacks


def _code(function: Any) -> CodeType:
    found: CodeType = inspect.unwrap(function).__code__
    return found


_COMPILE, _FOR_A_LAUNCH = _code(compiler.compile), _code(vars(JITFunction)["_do_compile"])
_SUBMITTED = next((one for one in _FOR_A_LAUNCH.co_consts if getattr(one, "co_name", "") == "async_compile"), None)
"""Frames in which an AsyncCompileMode's executor compiles, later and in another thread."""
_BEGUN = (_COMPILE, _FOR_A_LAUNCH, _code(JITFunction.run))


def source() -> Any:
    """The ASTSource or IRSource that this thread compiles; None if it does not compile."""
    return next((frame.f_locals["src"] for frame in thread_stacks.own() if frame.f_code is _COMPILE), None)


def launch_key() -> str | None:
    """The key in memory of the launch for which this thread compiles; None if it compiles for no launch."""
    return next((str(frame.f_locals["key"]) for frame in thread_stacks.own() if frame.f_code is _FOR_A_LAUNCH), None)


def source_to_submit() -> Any:
    """The source that this thread submits to an AsyncCompileMode; None if it submits nothing."""
    if source() is not None:
        return None
    return next((frame.f_locals.get("src") for frame in thread_stacks.own() if frame.f_code is _FOR_A_LAUNCH), None)


def is_submitted() -> bool:
    """True if this thread compiles a source that was submitted to an AsyncCompileMode."""
    return any(frame.f_code is _SUBMITTED for frame in thread_stacks.own())


def any_running() -> bool:
    """True if any thread compiles, or launches and so may be about to."""
    return bool(thread_stacks.threads(_BEGUN))
