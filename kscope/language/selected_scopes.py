"""The scopes of regions that auto= or mark= selected in unmarked code."""

from __future__ import annotations

import ast
from typing import Literal

from ..instrument.selection.auto import Lines
from .regions import scope


class _Selected(scope):
    def __init__(self, name: str, origin: Literal["auto", "lines"]) -> None:
        super().__init__(name)
        self._how = origin


def selected_scope(name: str, origin: Literal["auto", "lines"]) -> scope:
    """The scope of a selected region.

    Args:
        name: the region's name.
        origin: "auto" or "lines", see RegionMeta.origin.
    """
    return _Selected(name, origin)


def scope_expression(lines: Lines) -> ast.expr:
    """The expression that a `with` enters in a function that runs as Python; it uses no names of the function."""
    module = f"__import__({__name__!r}).language.selected_scopes"
    return ast.parse(f"{module}.selected_scope({lines.name!r}, {lines.origin!r})", mode="eval").body
