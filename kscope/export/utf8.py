"""Names as files can carry them.

What lives here: what every format needs. What does not: quoting, which is each format's own.
"""

from __future__ import annotations


def clean(name: str) -> str:
    """A name as UTF-8: a lone surrogate becomes a question mark."""
    return name.encode("utf-8", "replace").decode()


def plain(name: str) -> str:
    """A name on one line, for formats of lines: what is not to be seen becomes a space."""
    return "".join(letter if letter.isprintable() else " " for letter in clean(name))
