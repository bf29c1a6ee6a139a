"""A smaller kernel that fails as a case does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from ptxvm.machine import Clocks
from sassvm.launching import ROOMY

from kscope.instrument.subset import Subset

from . import batches
from .cases import Drawn
from .judging import Verdict, shortened, verdict, watched
from .trees import smaller

_WARP = (32, 1, 1)
_AT_ONCE, _MOST = 10, 60
"""Cases that are tried together, and how often."""


def shrunk(drawn: Drawn) -> tuple[Drawn, Verdict]:
    """The smallest case that is found, and what becomes of it."""
    with watched():
        now = verdict(drawn)
        for _ in range(_MOST):
            candidates = _simpler(drawn)
            while some := tuple(islice(candidates, _AT_ONCE)):
                found = zip(some, batches.mapped(verdict, some), strict=True)
                better = next(((one, what) for one, what in [*found] if signature(what) == signature(now)), None)
                if better is not None:
                    drawn, now = better
                    break
            else:
                break
    return drawn, now


def signature(found: Verdict) -> str:
    """The properties that must stay the same."""
    text = found.wrong or (found.refused if found.rejected else "")
    lines = [line for line in text.strip().splitlines() if line]
    return shortened(lines[-1].partition("=")[0].partition("0x")[0] if found.wrong else text) if lines else ""


def _simpler(drawn: Drawn) -> Iterator[Drawn]:
    plain = replace(
        drawn, renamed=False, elsewhere=False, pool=ROOMY, subset=Subset(), clocks=Clocks(steps=(1,)), bound=True,
        epoch=7,
    )  # fmt: skip
    small = replace(plain, outline=replace(drawn.outline, block=_WARP), shape=replace(drawn.shape, block=_WARP))
    yield from (one for one in (small, plain, replace(drawn, renamed=False, elsewhere=False)) if one != drawn)
    outline = drawn.outline
    lighter = replace(outline, live=0, directives="", constant=False)
    yield from (
        replace(drawn, outline=one)
        for one in (lighter, replace(lighter, live=outline.live), replace(outline, live=outline.live // 2))
        if one != outline
    )
    for nodes in smaller(outline.nodes):
        yield replace(drawn, outline=replace(outline, nodes=nodes))
