"""Whether the source of a compiled kernel has marks: asked for kernels that were launched and carry none.

What lives here: from a kernel's name in its binary to Python functions of this process, and what they name. What does
not: who asks (loading.py).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

_SYMBOL = "kernel_cutlass_{name}_"
"""How CuTe DSL begins the name of a kernel from that of its function."""


def has_marks(kernel: str, selected: Callable[[FunctionType], bool]) -> bool:
    """Whether a function of that kernel's name uses kscope or is selected, itself or in what it calls. True where no
    such function is left: it cannot be known."""
    visited: set[int] = set()
    found = [
        function
        for function in gc.get_objects()
        if type(function) is FunctionType and kernel.startswith(_SYMBOL.format(name=function.__name__))
    ]
    return not found or any(_uses_kscope(function, visited, selected) for function in found)


def _uses_kscope(function: FunctionType, visited: set[int], selected: Callable[[FunctionType], bool]) -> bool:
    if id(function) in visited:
        return False
    visited.add(id(function))
    if selected(function):
        return True
    for value in _named(function):
        if _home(value).partition(".")[0] == "kscope":
            return True
        inner = getattr(value, "__wrapped__", value)
        ours = type(inner) is FunctionType and not inner.__module__.startswith("cutlass")
        if ours and _uses_kscope(inner, visited, selected):
            return True
    return False


def _home(value: Any) -> str:
    if isinstance(value, ModuleType):
        return value.__name__
    home = getattr(value, "__module__", None)
    return home if isinstance(home, str) else ""


def _named(function: FunctionType) -> Iterator[Any]:
    """What the function's words mean: globals, what it closes over, and methods of its own class."""
    names = set(_words(function.__code__))
    owner = function.__globals__.get(function.__qualname__.partition(".")[0])
    for name in names:
        if name in function.__globals__:
            value = function.__globals__[name]
            yield value
            if isinstance(value, ModuleType) and _home(value).partition(".")[0] != "cutlass":  # helpers.put
                yield from (vars(value)[inner] for inner in names if inner in vars(value))
        if isinstance(owner, type) and name in vars(owner):
            yield vars(owner)[name]
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _words(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _words(constant)
