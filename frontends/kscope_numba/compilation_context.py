"""Hooks around Numba's compiler: track which function each thread compiles, and add source lines to typing errors.

numba-cuda re-raises errors of Numba's typing rules without the source location.
"""

from __future__ import annotations

import linecache
import threading
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any

from kscope.instrument.hooks import Hook, Hooks

from .hook_points import check, module

_compiler: Any = module("compiler")
_dispatcher: Any = module("dispatcher")
_types: Any = module("types")
_POINT, _ADD = "compile_cuda", "add_context"


class CompilationContext:
    """The hooks, while recording is enabled."""

    def __init__(self) -> None:
        self.hooks = Hooks(Hook(_compiler, _POINT, self._compile), Hook(_dispatcher, _POINT, self._compile))
        self._thread = threading.local()

    def is_kernel(self, function: FunctionType) -> bool:
        """True if this thread is compiling the function as a kernel, not as a callee."""
        compiling = getattr(self._thread, "compiling", [])
        return bool(compiling) and compiling[-1] == (function, True)

    def check(self) -> None:
        """Raises UnsupportedError naming a missing hook point."""
        check(_compiler, _POINT)
        check(_dispatcher, _POINT)

    def _compile(self, original: Callable[..., Any], *args: Any, **options: Any) -> Any:
        compiling = vars(self._thread).setdefault("compiling", [])
        compiling.append((args[0], len(args) > 1 and args[1] == _types.void) if args else ())
        try:
            return original(*args, **options)
        except Exception as error:
            _add_location(error)
            raise
        finally:
            compiling.pop()


def _add_location(error: Exception) -> None:
    """Add the source line to a Numba error that lacks it."""
    location = _typed_location(error.__traceback__)
    if location is None or not hasattr(error, _ADD):
        return
    text = str(error)
    if Path(location.filename).name not in text or f"line {location.line}" not in text:
        line = linecache.getline(location.filename, location.line).strip()
        getattr(error, _ADD)(f'typing at File "{location.filename}", line {location.line}:\n    {line}')


def _typed_location(trace: TracebackType | None) -> Any:
    """The source location that Numba was typing: the innermost frame's that has one."""
    location = None
    while trace is not None:
        location = getattr(trace.tb_frame.f_locals.get("constraint"), "loc", location)
        trace = trace.tb_next
    return location
