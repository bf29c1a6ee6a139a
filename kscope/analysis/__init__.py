"""Analyses of traces: each file answers one question with a plain function of a Trace."""

from __future__ import annotations

from .display import Shown, render_with


def _rendered(result: Shown, width: int | None) -> str:
    from .text import rendered  # imports every analysis

    return rendered(result, width)


render_with(_rendered)
