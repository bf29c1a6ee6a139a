"""Unannotated kernels: finds the functions that a selection touches, and wraps the selected statements in regions."""

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
from kscope.instrument.selection.catalog import Site
from kscope.language.regions import scope
from kscope.language.selected_scopes import scope_expression, selected_scope

from . import source

_KINDS = (
    (("barrier",), re.compile(r"\bsync(threads|warp|)(_\w+)?\(")),
    (("load", "store"), re.compile(r"\batomic\.\w+\(")),
)
_NUMBA = ("numba", "numba_cuda")


@dataclass(frozen=True)
class FunctionSelection:
    """The part of a selection that applies to one function.

    Attributes:
        lines: line ranges that touch the function.
        kinds: the selection if it marks kinds of operations in this function, else an empty one.
        sites: the marked sites, filled when the function is changed.
    """

    lines: tuple[Lines, ...] = ()
    kinds: Selection = field(default_factory=Selection)
    sites: list[Site] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lines or self.kinds)

    def apply(self, definition: source.Definition, item: Callable[[Lines], ast.expr], file: str) -> source.Definition:
        """The definition with a `with` around each selected statement. Raises UsageError."""
        definition = pylines.wrap(definition, self.lines, item)
        self.sites.extend(Site(one.name, "lines", one.where) for one in self.lines)
        if self.kinds:
            kinds = pykinds.Kinds(self.kinds, file, _KINDS, item)
            definition = kinds.mark(definition)
            self.sites.extend(kinds.sites)
        return definition


def selection_for(
    function: FunctionType, selection: Selection, is_kernel: Callable[[FunctionType], bool]
) -> FunctionSelection:
    """The part of a selection that applies to a function. A kernel-name filter does not exclude device functions."""
    if not touches(function, selection) or not (selection.of_kernel(function.__name__) or not is_kernel(function)):
        return FunctionSelection()
    kinds = selection if selection.kinds and _is_user_code(function) else Selection()
    return FunctionSelection(tuple(pylines.touched(selection.lines, function.__code__)), kinds)


def touches(function: FunctionType, selection: Selection) -> bool:
    """True if the selection may match something in the function's own code."""
    return bool(selection.kinds and _is_user_code(function)) or bool(
        selection.lines and pylines.touched(selection.lines, function.__code__)
    )


def _is_user_code(function: FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] not in _NUMBA


def wrap_regions(
    definition: source.Definition, function: FunctionType, selection: FunctionSelection
) -> tuple[source.Definition, dict[str, scope]]:
    """The definition with a `with` around each selected statement, and the scopes by name. Raises UsageError."""
    scopes: dict[str, scope] = {}

    def item(lines: Lines) -> ast.expr:
        name = f"kscope_lines_{len(scopes)}"
        scopes[name] = selected_scope(lines.name, lines.origin)
        return ast.Name(name, ast.Load())

    return selection.apply(definition, item, _file(function)), scopes


def marked_code(function: FunctionType, selection: FunctionSelection) -> CodeType | None:
    """Python code of the function with selected regions; None if it has no source and only kinds are selected.

    Raises UsageError.
    """

    def change(definition: source.Definition) -> source.Definition:
        return ast.fix_missing_locations(selection.apply(definition, scope_expression, _file(function)))

    try:
        return source.rebuild(function, change, {}).__code__
    except source.NoSourceError as error:
        if selection.lines:
            raise cannot_mark(selection.lines[0], function, str(error)) from None
        return None


def cannot_mark(lines: Lines, function: FunctionType, reason: str) -> UsageError:
    """The error for selected lines of a function whose source cannot be changed."""
    return UsageError(
        f"region {lines}: {function.__qualname__} ({source.location(function)}) cannot be marked: {reason}"
    )


def _file(function: FunctionType) -> str:
    return PurePath(function.__code__.co_filename).name
