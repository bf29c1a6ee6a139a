"""Around Numba's compiler: its errors name the user's line, and it is known what is compiled now.

numba-cuda takes the errors of Numba's typing rules for somebody else's, and hands them on without the place that it
was at. What lives here: finding that place, and adding it; whether a function is compiled as a kernel. What does not:
errors of kscope (lowering.py).
"""

from __future__ import annotations

import linecache
import threading
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any

from kscope.instrument.hooks import Hook

from .hook_points import check, module

_compiler: Any = module("compiler")
_dispatcher: Any = module("dispatcher")
_types: Any = module("types")
_POINT, _ADD = "compile_cuda", "add_context"


class Located:
    """The hook around Numba's compiler, while recording is enabled."""

    def __init__(self) -> None:
        self._hooks = Hook(_compiler, _POINT, self._compiling), Hook(_dispatcher, _POINT, self._compiling)
        self._now = threading.local()

    def is_kernel(self, function: FunctionType) -> bool:
        """Whether this thread compiles that function as a kernel now, and not as what a kernel calls."""
        compiled = getattr(self._now, "compiled", [])
        return bool(compiled) and compiled[-1] == (function, True)

    def check(self) -> None:
        """Raises UnsupportedError naming the hook point that this numba-cuda lacks."""
        check(_compiler, _POINT)
        check(_dispatcher, _POINT)

    def install(self) -> None:
        """Idempotent."""
        for hook in self._hooks:
            hook.install()

    def remove(self) -> None:
        """Inverse of install()."""
        for hook in self._hooks:
            hook.remove()

    def _compiling(self, original: Callable[..., Any], *args: Any, **options: Any) -> Any:
        compiled = vars(self._now).setdefault("compiled", [])
        compiled.append((args[0], len(args) > 1 and args[1] == _types.void) if args else ())
        try:
            return original(*args, **options)
        except Exception as error:
            _locate(error)
            raise
        finally:
            compiled.pop()


def _locate(error: Exception) -> None:
    """Adds the place to one of Numba's errors that does not name it."""
    place = _place(error.__traceback__)
    if place is None or not hasattr(error, _ADD):
        return
    text = str(error)
    if Path(place.filename).name not in text or f"line {place.line}" not in text:
        line = linecache.getline(place.filename, place.line).strip()
        getattr(error, _ADD)(f'typing at File "{place.filename}", line {place.line}:\n    {line}')


def _place(trace: TracebackType | None) -> Any:
    """What Numba was typing, from the innermost of its frames that knows."""
    found = None
    while trace is not None:
        found = getattr(trace.tb_frame.f_locals.get("constraint"), "loc", found)
        trace = trace.tb_next
    return found
