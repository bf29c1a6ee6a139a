"""Results that show themselves: as a table of bounded size in a terminal, in an interpreter and in a notebook."""

from __future__ import annotations

from functools import singledispatch
from html import escape
from importlib import import_module


@singledispatch
def rendered(result: object, width: int | None) -> str:
    """A result as text; text.py has it for each type."""
    raise AssertionError(f"{type(result).__name__} has no text")


class Shown:
    """A result with a text. ``str()`` and ``repr()`` are that text, and a notebook shows it."""

    def text(self, width: int | None = None) -> str:
        """The table for a terminal.

        Args:
            width: columns; None for this terminal's.
        """
        import_module(".text", __package__)  # adds itself to rendered(); it imports the results, they cannot import it
        return rendered(self, width)

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
