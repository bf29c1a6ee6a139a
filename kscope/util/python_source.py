"""Python source as a syntax tree."""

from __future__ import annotations

import ast

_TRIES = 3


def parsed(text: str) -> ast.Module:
    """The syntax tree of a module. Raises SyntaxError, ValueError.

    CPython 3.11 counts the depth of a tree in one place for all threads, so parsing in two threads at once may raise
    SystemError; the next try works.
    """
    for _ in range(_TRIES - 1):
        try:
            return ast.parse(text)
        except SystemError:
            continue
    return ast.parse(text)
