"""Kernels that nobody annotated: which functions are selected, and the functions with regions in them.

What lives here: from a selection to `with` statements, for compiled kernels and simulated ones. What does not: which
statements a range of lines means and which are of a kind (kscope/selection), what becomes of a
`with` (lowering.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from types import CodeType, FunctionType

from kscope.errors import UsageError
from kscope.instrument.selection import pykinds, pylines
from kscope.instrument.selection.auto import Lines, Selection
from kscope.instrument.selection.catalogue import Site
from kscope.language.regions import scope, selected

from . import source

_WORDS = (
    (("barrier",), re.compile(r"\bsync(threads|warp|)(_\w+)?\(")),
    (("load", "store"), re.compile(r"\batomic\.\w+\(")),
)
_NUMBA = ("numba", "numba_cuda")


@dataclass(frozen=True)
class Asked:
    """What a selection asks of one function. sites: what was found, filled when the function is changed."""

    lines: tuple[Lines, ...] = ()
    kinds: Selection = field(default_factory=Selection)
    sites: list[Site] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lines or self.kinds)

    def change(self, definition: source.Definition, item: Callable[[Lines], ast.expr], file: str) -> source.Definition:
        """The definition with a `with` around what is asked for. Raises UsageError."""
        definition = pylines.wrap(definition, self.lines, item)
        self.sites.extend(Site(one.name, "lines", one.where) for one in self.lines)
        if self.kinds:
            found = pykinds.Kinds(self.kinds, file, _WORDS, item)
            definition = found.mark(definition)
            self.sites.extend(found.sites)
        return definition


def asked(function: FunctionType, selection: Selection, is_kernel: Callable[[FunctionType], bool]) -> Asked:
    """What of the selection concerns the function. Device functions belong to kernels of any name."""
    if not touches(function, selection) or not (selection.of_kernel(function.__name__) or not is_kernel(function)):
        return Asked()
    kinds = selection if selection.kinds and _is_users(function) else Selection()
    return Asked(tuple(pylines.touched(selection.lines, function.__code__)), kinds)


def touches(function: FunctionType, selection: Selection) -> bool:
    """Whether something of the selection may be in the function's own code."""
    return bool(selection.kinds and _is_users(function)) or bool(
        selection.lines and pylines.touched(selection.lines, function.__code__)
    )


def _is_users(function: FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] not in _NUMBA


def wrapped(
    definition: source.Definition, function: FunctionType, wanted: Asked
) -> tuple[source.Definition, dict[str, scope]]:
    """The definition with a `with` around what is asked for, and what names in it stand for. Raises UsageError."""
    named: dict[str, scope] = {}

    def item(one: Lines) -> ast.expr:
        name = f"kscope_lines_{len(named)}"
        named[name] = selected(one.name, one.origin)
        return ast.Name(name, ast.Load())

    return wanted.change(definition, item, _file(function)), named


def in_python(function: FunctionType, wanted: Asked) -> CodeType | None:
    """The code of the function as Python runs it, with regions. None where its source is not at hand, and only
    statements of a kind are asked for. Raises UsageError."""

    def change(definition: source.Definition) -> source.Definition:
        return ast.fix_missing_locations(wanted.change(definition, pylines.entered, _file(function)))

    try:
        return source.rebuilt(function, change, {}).__code__
    except source.NoSourceError as error:
        if wanted.lines:
            raise refused(wanted.lines[0], function, str(error)) from None
        return None


def refused(one: Lines, function: FunctionType, reason: str) -> UsageError:
    """The error for lines of a function whose source cannot be changed."""
    return UsageError(f"region {one}: {function.__qualname__} ({source.where(function)}) cannot be marked: {reason}")


def _file(function: FunctionType) -> str:
    return PurePath(function.__code__.co_filename).name
