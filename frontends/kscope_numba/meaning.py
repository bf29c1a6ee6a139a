"""What the names in a function mean: which of them are kscope's, before anything is compiled.

What lives here: looking names up in a function's globals, closure and builtins. What does not: what is
done with the function (lowering.py), Numba.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

import kscope
from kscope.language import regions
from kscope.language.regions import counter, instant, scope

CALLS = (instant, counter)
"""kscope's functions that are called in a kernel; the rest are scopes and their methods."""
_MODULES = (kscope, regions)


def unwrapped(thing: Any) -> Any:
    """The Python function in a dispatcher, or the thing itself."""
    return getattr(thing, "py_func", thing)


def environment(function: FunctionType) -> dict[str, Any]:
    """Every name that the function can see beside its own variables, with what it stands for now."""
    return {**vars(builtins), **function.__globals__, **_cells(function)}


def direct(function: FunctionType) -> bool:
    """Whether the function's own code, or that of a function defined in it, names something of kscope's."""
    return any(map(is_ours, _named(function)))


def concerns(
    function: Any, seen: set[int] | None = None, selected: Callable[[FunctionType], bool] = lambda function: False
) -> bool:
    """Whether the function, or one that it names, directly or through others, names something of kscope's, or is one
    of those whose lines are selected."""
    function = unwrapped(function)
    seen = set() if seen is None else seen
    if not isinstance(function, FunctionType) or id(function) in seen:
        return False
    seen.add(id(function))
    named = list(_named(function))
    return any(map(is_ours, named)) or selected(function) or any(concerns(thing, seen, selected) for thing in named)


def is_ours(thing: Any) -> bool:
    """Whether it is kscope, or one of the words that are written in kernels."""
    if isinstance(thing, type):
        return issubclass(thing, scope)
    return isinstance(thing, scope) or any(thing is known for known in (*_MODULES, *CALLS)) or _bound(thing)


def _bound(thing: Any) -> bool:
    return isinstance(getattr(thing, "__self__", None), scope)


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def _named(function: FunctionType) -> Iterator[Any]:
    """What the names in the code stand for, their attributes (a.b.c), what containers hold. Looking imports nothing."""
    names = {name for code in codes(function.__code__) for name in code.co_names}
    found = {id(thing): thing for thing in (*_known(function.__globals__, names), *_cells(function).values())}
    for _ in range(2):
        for thing in list(found.values()):
            found.update((id(part), part) for part in _parts(thing, names))
    return (getattr(thing, "__func__", thing) if isinstance(thing, staticmethod) else thing for thing in found.values())


def _parts(thing: Any, names: Iterable[str]) -> list[Any]:
    """Attributes of those names, or what is in it."""
    if is_ours(thing) or isinstance(thing, FunctionType) or hasattr(thing, "py_func"):
        return []
    if isinstance(thing, (list, tuple, dict)):
        return [part for part in (thing.values() if isinstance(thing, dict) else thing) if is_ours(part)]
    space = getattr(thing, "__dict__", {})
    return _known(space, names) if isinstance(space, Mapping) else []


def _known(space: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    return [space[name] for name in names if name in space]


def _cells(function: FunctionType) -> dict[str, Any]:
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found
