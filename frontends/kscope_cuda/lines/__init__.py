"""Lines of CUDA C++ as regions, in sources that are compiled while the program runs and that nobody annotated.

    kscope run --region load=kernels.cu:10-20 script.py

What lives here: from a selection and a source to the source with marks, which NVRTC compiles in its place. What does
not: the compilers (../cupy, ../core, ../loadtime.py), other frontends' lines (kscope/pylines.py).
"""

from __future__ import annotations

from functools import lru_cache

from kscope.auto import Lines, Selection

from .choosing import Span
from .finding import spans
from .functions import functions
from .tokens import Tokens, UnreadableError
from .wrapping import wrap

__all__ = ["marked", "touches"]


def touches(source: str, selection: Selection) -> bool:
    """Whether the selection may mean lines of this source, or of one that this text becomes a part of."""
    return bool(selection.lines) and bool(_spans(source, selection.lines))


def marked(source: str, selection: Selection) -> str:
    """The source with marks around the lines that are selected; the source itself where none is.

    Raises UsageError, which names the region and the line of what is in its way.
    """
    found = _spans(source, selection.lines) if selection.lines else ()
    return wrap(source, found, lambda name: bool(selection.of_kernel(name)))[0] if found else source


@lru_cache(256)
def _spans(source: str, lines: tuple[Lines, ...]) -> tuple[Span, ...]:
    try:
        names = [function.name for function in functions(Tokens.of(source))]
    except UnreadableError:  # wrap() says why
        names = []
    return tuple(spans(source, lines, names))
