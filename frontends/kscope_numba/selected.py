"""Lines of kernels that nobody annotated: which functions they are in, and the functions with regions around them.

What lives here: from a selection to `with` statements, for compiled kernels and simulated ones. What does not: which
statements a range of lines means (kscope/pylines.py), what becomes of a `with` (lowering.py).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType

from kscope import pylines
from kscope.auto import Lines, Selection
from kscope.errors import UsageError
from kscope.regions import scope

from . import source


def lines(function: FunctionType, selection: Selection, is_kernel: Callable[[FunctionType], bool]) -> tuple[Lines, ...]:
    """The selected lines that the function has code at. Device functions belong to kernels of any name."""
    if not selection.lines:
        return ()
    found = tuple(pylines.touched(selection.lines, function.__code__))
    return found if found and (selection.of_kernel(function.__name__) or not is_kernel(function)) else ()


def wrapped(definition: source.Definition, selected: Sequence[Lines]) -> tuple[source.Definition, dict[str, scope]]:
    """The definition with a `with` around each of the lines, and what names in it stand for. Raises UsageError."""
    named: dict[str, scope] = {}

    def item(one: Lines) -> ast.expr:
        name = f"kscope_lines_{len(named)}"
        named[name] = scope(one.name)
        return ast.Name(name, ast.Load())

    return pylines.wrap(definition, selected, item), named


def in_python(function: FunctionType, selected: Sequence[Lines]) -> CodeType:
    """The code of the function as Python runs it, with regions around the lines. Raises UsageError."""

    def change(definition: source.Definition) -> source.Definition:
        return ast.fix_missing_locations(pylines.wrap(definition, selected, pylines.entered))

    try:
        return source.rebuilt(function, change, {}).__code__
    except source.NoSourceError as error:
        raise refused(selected[0], function, str(error)) from None


def refused(one: Lines, function: FunctionType, reason: str) -> UsageError:
    """The error for lines of a function whose source cannot be changed."""
    return UsageError(f"region {one}: {function.__qualname__} ({source.where(function)}) cannot be marked: {reason}")
