"""Python functions before they are compiled: their code objects, the objects they name, whether they use kscope."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_PACKAGES = ("kscope", "triton_kscope")
"""Packages whose names place marks in kernels."""


def nested(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


def names(function: FunctionType) -> tuple[str, ...]:
    """The global and attribute names in a function and in the functions defined in it, each once, in order."""
    return tuple(dict.fromkeys(name for code in nested(function.__code__) for name in code.co_names))


def closure(function: FunctionType) -> dict[str, Any]:
    """The variables that a function closes over, with their values; without those not assigned yet."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def references(function: FunctionType) -> Iterator[Any]:
    """The objects that a function's names refer to, found without importing or running anything.

    These are globals, closure variables, attributes up to two dots deep (``a.b.c``), methods of the function's class,
    and kscope objects in lists, tuples and dicts.
    """
    used = names(function)
    owner = function.__globals__.get(function.__qualname__.partition(".")[0])
    roots = [*_members(function.__globals__, used), *closure(function).values()]
    if isinstance(owner, type):
        roots += _members(vars(owner), used)
    found = {id(thing): thing for thing in roots}
    for _ in range(2):
        for thing in list(found.values()):
            found.update((id(part), part) for part in _parts(thing, used))
    return (getattr(thing, "__func__", thing) if isinstance(thing, staticmethod) else thing for thing in found.values())


def is_kscope(thing: Any) -> bool:
    """True if an object is a module, class, function or instance of kscope, or of a subclass of kscope's."""
    if isinstance(thing, ModuleType):
        return _package(thing.__name__) in _PACKAGES
    if isinstance(thing, MethodType):
        return is_kscope(thing.__self__)
    if isinstance(thing, FunctionType):
        return _package(thing.__module__) in _PACKAGES
    kind = thing if isinstance(thing, type) else type(thing)
    return any(_package(base.__module__) in _PACKAGES for base in kind.__mro__)


def reachable(function: Any, inner: Callable[[Any], Any]) -> Iterator[FunctionType]:
    """A function and every Python function that it names, directly or through others.

    Args:
        function: a Python function or the DSL's object around one.
        inner: returns the Python function in a DSL's object; anything else for objects not to be followed.
    """
    seen: set[int] = set()
    work = [function]
    while work:
        found = inner(work.pop())
        if isinstance(found, FunctionType) and id(found) not in seen:
            seen.add(id(found))
            yield found
            work += references(found)


def uses_kscope(function: FunctionType) -> bool:
    """True if a function, or one defined in it, names something of kscope."""
    return any(map(is_kscope, references(function)))


def _parts(thing: Any, used: Iterable[str]) -> list[Any]:
    """Attributes of an object with these names; kscope objects in a container."""
    if is_kscope(thing) or isinstance(thing, FunctionType):
        return []
    if isinstance(thing, (list, tuple, dict)):
        return [part for part in (thing.values() if isinstance(thing, dict) else thing) if is_kscope(part)]
    space = getattr(thing, "__dict__", {})
    return _members(space, used) if isinstance(space, Mapping) else []


def _members(space: Mapping[str, Any], used: Iterable[str]) -> list[Any]:
    return [space[name] for name in used if name in space]


def _package(module: str | None) -> str:
    return str(module).partition(".")[0]
