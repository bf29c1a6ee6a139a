"""Which of a function's names are kscope's, found before Numba compiles it."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import FunctionType
from typing import Any

from kscope.instrument.code_objects import closure, reachable, uses_kscope
from kscope.language.regions import counter, instant

CALLS = (instant, counter)
"""kscope's functions that are called in a kernel; its other names are scopes and their methods."""


def unwrapped(thing: Any) -> Any:
    """The Python function in a dispatcher; any other object as it is."""
    return getattr(thing, "py_func", thing)


def environment(function: FunctionType) -> dict[str, Any]:
    """Name -> value of everything that a function can see besides its local variables."""
    return {**vars(builtins), **function.__globals__, **closure(function)}


def concerns(function: Any, selected: Callable[[FunctionType], bool] = lambda function: False) -> bool:
    """Whether a function, or one that it reaches, uses kscope or is selected.

    Args:
        function: a Python function or a dispatcher.
        selected: whether a selection touches a function.
    """
    return any(uses_kscope(one) or selected(one) for one in reachable(function, unwrapped))
