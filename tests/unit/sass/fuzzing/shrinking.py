"""A smaller kernel that fails as a case does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from ptxvm.machine import Clocks
from sassvm.launching import ROOMY

from kscope.instrument.sampling import Sampling

from . import batches
from .cases import Drawn
from .judging import Verdict, shortened, verdict, watched
from .trees import smaller

_AT_ONCE, _MOST = 10, 60
"""Cases that are tried together, and how often."""


def shrunk(drawn: Drawn) -> tuple[Drawn, Verdict]:
    """The smallest case that is found, and what becomes of it; within nothing."""
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
    """What has to stay the same."""
    text = found.wrong or (found.refused if found.rejected else "")
    lines = [line for line in text.strip().splitlines() if line]
    return shortened(lines[-1].partition("=")[0].partition("0x")[0] if found.wrong else text) if lines else ""


def _simpler(drawn: Drawn) -> Iterator[Drawn]:
    outline = drawn.outline
    for change in (
        {"renamed": False}, {"elsewhere": False}, {"pool": ROOMY}, {"sampling": Sampling()}, {"clocks": Clocks(steps=(1,))},
        {"bound": True, "epoch": 7},
    ):  # fmt: skip
        if any(getattr(drawn, name) != value for name, value in change.items()):
            yield replace(drawn, **change)
    for less in ({"live": 0}, {"live": outline.live // 2}, {"directives": ""}, {"block": (32, 1, 1)}, {"constant": False}):
        if any(getattr(outline, name) != value for name, value in less.items()):
            yield replace(drawn, outline=replace(outline, **less))
    for nodes in smaller(outline.nodes):
        yield replace(drawn, outline=replace(outline, nodes=nodes))
