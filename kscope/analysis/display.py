"""Results that show themselves: as a table of bounded size in a terminal, in an interpreter and in a notebook."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

_renderers: list[Callable[[Shown, int | None], str]] = []


def render_with(renderer: Callable[[Shown, int | None], str]) -> None:
    """Set the function that writes any result at a width: its texts import the results, which therefore cannot import
    it."""
    _renderers[:] = [renderer]


class Shown:
    """A result with a text. ``str()`` and ``repr()`` are that text, and a notebook shows it."""

    def text(self, width: int | None = None) -> str:
        """The table for a terminal.

        Args:
            width: columns; None for this terminal's.
        """
        (renderer,) = _renderers
        return renderer(self, width)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return preformatted(self.text(_NOTEBOOK))


_NOTEBOOK = 140
"""Columns of a text in a notebook."""


def preformatted(text: str) -> str:
    """Text as HTML that keeps its columns."""
    return f'<pre style="line-height:1.2">{escape(text)}</pre>'
