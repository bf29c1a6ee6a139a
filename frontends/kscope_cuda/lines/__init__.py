"""CUDA C++ that nobody annotated: lines of it, and statements by their kind, as regions.

kscope run --region load=kernels.cu:10-20 script.py
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from kscope.instrument.selection.auto import Lines, Selection
from kscope.instrument.selection.catalogue import Site

from .choosing import Chosen, Source, Span, choose, nested
from .finding import spans
from .functions import functions
from .sites import Found, by_kind, loops
from .tokens import Tokens, UnreadableError
from .wrapping import wrap

_CALLED = re.compile(r"([A-Za-z_]\w*)\s*\(")
__all__ = ["Marked", "marked", "touches"]


@dataclass(frozen=True)
class Marked:
    """A source with marks. sites: those of each kernel, those of the device functions among them."""

    text: str
    sites: dict[str, tuple[Site, ...]]


def touches(source: str, selection: Selection) -> bool:
    """Whether lines that are selected may be of this source, or of one that this text becomes a part of."""
    return bool(selection.lines) and bool(_spans(source, selection.lines))


def marked(source: str, selection: Selection, *, kinds: bool = True) -> Marked | None:
    """The source with marks around what is selected; None where nothing is. kinds: whether statements may be marked
    that are selected by their kind.

    Raises UsageError, which names the region and the line of what is in its way.
    """
    asked = nested(_spans(source, selection.lines)) if selection.lines else []
    if not asked and not (kinds and selection.kinds):
        return None
    try:
        read = Source.of(source)
    except UnreadableError as error:
        if not asked:
            return None
        raise asked[0].refused(
            f"the source cannot be read: line {asked[0].told(error.line)}: {error}; macros and branches of #if may "
            "hide what belongs together"
        ) from None
    found = [Found(one, "lines", loops(read, one)) for one in _chosen(read, asked, selection)]
    found += by_kind(read, selection) if kinds else []
    if not found:
        return None
    return Marked(wrap(read, [one.chosen for one in found]), _sites(read, found))


def _chosen(source: Source, asked: Sequence[Span], selection: Selection) -> list[Chosen]:
    """What the lines mean. Device functions belong to kernels of any name."""
    found = [one for span in asked if (one := choose(source, span)) is not None]
    return [one for one in found if not one.function.kernel or selection.of_kernel(one.function.name)]


def _sites(source: Source, found: Sequence[Found]) -> dict[str, tuple[Site, ...]]:
    kernels = [function.name for function in source.found if function.kernel]
    return {
        name: tuple(
            one.site(source) for one in found if not one.chosen.function.kernel or one.chosen.function.name == name
        )
        for name in dict.fromkeys(kernels)
    }


@lru_cache(256)
def _spans(source: str, lines: tuple[Lines, ...]) -> tuple[Span, ...]:
    try:
        names = [function.name for function in functions(Tokens.of(source))]
    except UnreadableError:  # marked() says why
        names = _CALLED.findall(source)
    return tuple(spans(source, lines, names))
