"""Marks unannotated CUDA C++: selected lines, and statements of selected kinds.

kscope run --mark load=kernels.cu:10-20 script.py
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from kscope.instrument.selection.auto import Lines, Selection, outer_first
from kscope.instrument.selection.catalog import Site

from .functions import functions
from .insert import insert_marks
from .kinds import MarkedRange, by_kind, loops
from .locate import locate
from .ranges import LineRange, Source, StatementRange, statements_in
from .tokens import Tokens, UnreadableError

_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
__all__ = ["MarkedSource", "marked", "touches"]


@dataclass(frozen=True)
class MarkedSource:
    """A source with marks, and the sites of each kernel, including those of device functions."""

    text: str
    sites: dict[str, tuple[Site, ...]]


def touches(source: str, selection: Selection) -> bool:
    """True if selected lines may be in this source, or in one that contains this text."""
    return bool(selection.lines) and bool(_locate(source, selection.lines))


def marked(source: str, selection: Selection, *, kinds: bool = True) -> MarkedSource | None:
    """The source with marks around selected lines and, if `kinds`, selected kinds; None if nothing is selected.

    Raises UsageError, which names the region and the line, for lines that cannot be marked.
    """
    ranges = outer_first(_locate(source, selection.lines)) if selection.lines else []
    if not ranges and not (kinds and selection.kinds):
        return None
    try:
        parsed = Source.of(source)
    except UnreadableError as error:
        if not ranges:
            return None
        raise ranges[0].unreadable("the source", error) from None
    found = [MarkedRange(one, "lines", loops(parsed, one)) for one in _statements(parsed, ranges, selection)]
    found += by_kind(parsed, selection) if kinds else []
    if not found:
        return None
    return MarkedSource(insert_marks(parsed, [one.statements for one in found]), _sites(parsed, found))


def _statements(source: Source, ranges: Sequence[LineRange], selection: Selection) -> list[StatementRange]:
    """The statements of these lines. Device functions belong to kernels of any name."""
    found = [one for lines in ranges if (one := statements_in(source, lines)) is not None]
    return [one for one in found if not one.function.kernel or selection.of_kernel(one.function.name)]


def _sites(source: Source, found: Sequence[MarkedRange]) -> dict[str, tuple[Site, ...]]:
    kernels = [function.name for function in source.functions if function.kernel]
    return {
        name: tuple(one.site(source) for one in found if one.statements.function.in_kernel(name))
        for name in dict.fromkeys(kernels)
    }


@lru_cache(256)
def _locate(source: str, lines: tuple[Lines, ...]) -> tuple[LineRange, ...]:
    try:
        names = [function.name for function in functions(Tokens.of(source))]
    except UnreadableError:  # marked() raises it
        names = _CALL.findall(source)
    return tuple(locate(source, lines, names))
