"""Python source as a syntax tree."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache
from types import FunctionType

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


def definition(function: FunctionType) -> ast.FunctionDef | None:
    """A function's definition in its file, not to be changed; None if the source is missing or does not contain it."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    found = (one for one in _definitions(text, code.co_name) if _begins(one) <= code.co_firstlineno <= one.lineno)
    return next(found, None)


@lru_cache(16)
def _definitions(text: str, name: str) -> tuple[ast.FunctionDef, ...]:
    """The definitions of functions with a name."""
    try:
        tree = parsed(text)
    except (SyntaxError, ValueError):
        return ()
    return tuple(one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == name)


def _begins(one: ast.FunctionDef) -> int:
    return min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)])
