"""Puts the statements at given lines of a Python kernel into a `with`.

    kernels.py:41-42                    with REGION:
        x = load(a)                         x = load(a)
        y = load(b)                         y = load(b)

A `with` opens no scope in Python, and `return`, `break` and `continue` leave it, so the function computes the same.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType

from ...errors import UsageError
from ..code_objects import nested
from .auto import Lines, outer_first

Block = list[ast.stmt]
_SKIPPED = (ast.Global, ast.Nonlocal)
"""Declarations, which do nothing where they are."""


def touched(lines: Iterable[Lines], code: CodeType) -> list[Lines]:
    """The ranges that overlap with the code of a function or of one defined in it."""
    inside = [line for one in nested(code) for _, _, line in one.co_lines() if line]
    low, high = min(inside, default=0), max(inside, default=0)
    return [one for one in lines if one.first <= high and one.last >= low and one.in_file(code.co_filename)]


def wrap(definition: ast.FunctionDef, lines: Sequence[Lines], item: Callable[[Lines], ast.expr]) -> ast.FunctionDef:
    """The definition with every range of lines as the body of a `with`.

    A statement that is partly in a range belongs to it if it contains no statements.

    Args:
        definition: the function, changed in place.
        lines: the ranges.
        item: returns the expression that a `with` enters.

    Raises:
        UsageError: a range cuts through a loop or another block, has no statement, or overlaps with another one.
    """
    for one in outer_first(lines):
        found = _block(definition.body, one)
        if found is None:
            raise UsageError(f"region {one}: {definition.name} has no statement at these lines")
        block, first, last = found
        block[first : last + 1] = [region(item(one), block[first : last + 1])]
    return definition


def region(item: ast.expr, body: Block) -> ast.With:
    """The statements in a `with` at their place."""
    made = ast.With(items=[ast.withitem(item)], body=body)
    made.lineno, made.col_offset = _first(body[0]), body[0].col_offset
    made.end_lineno, made.end_col_offset = body[-1].end_lineno, body[-1].end_col_offset
    for node in ast.walk(made.items[0]):
        ast.copy_location(node, made)
    return made


def _block(block: Block, lines: Lines) -> tuple[Block, int, int] | None:
    """The list of statements that contains the range, and its first and last index; None if the range has no statement.

    Raises UsageError for a range that cuts through a statement.
    """
    inside = [
        at
        for at, statement in enumerate(block)
        if _overlap(statement, lines) and not isinstance(statement, _SKIPPED) and not (at == 0 and _is_text(statement))
    ]
    if not inside:
        return None
    first, last = inside[0], inside[-1]
    for at in (first, last):
        if _whole(block[at], lines):
            continue
        if first != last:
            raise _cut(block[at], lines)
        return _within(block[at], lines)
    return block, first, last


def _within(statement: ast.stmt, lines: Lines) -> tuple[Block, int, int] | None:
    """Same as _block(), for a range inside this one statement."""
    parts = list(blocks(statement))
    header = min((_first(part[0]) for part in parts), default=_last(statement) + 1)
    if lines.first < header and lines.last >= _first(statement):
        raise _cut(statement, lines)
    found = [place for part in parts if (place := _block(part, lines)) is not None]
    if len(found) > 1:
        raise _cut(statement, lines)
    return found[0] if found else None


def blocks(statement: ast.stmt) -> Iterator[Block]:
    """The lists of statements in a statement, including those of functions and classes that it defines."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        part = getattr(statement, field, [])
        if part and isinstance(part[0], ast.stmt):
            yield part
        else:
            yield from (one.body for one in part)


def _whole(statement: ast.stmt, lines: Lines) -> bool:
    """True if a statement is inside the range, or contains no statements that could be inside it alone."""
    return not any(blocks(statement)) or (lines.first <= _first(statement) and _last(statement) <= lines.last)


def _overlap(statement: ast.stmt, lines: Lines) -> bool:
    return _first(statement) <= lines.last and lines.first <= _last(statement)


def _first(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(one.lineno for one in decorators)])


def _last(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _cut(statement: ast.stmt, lines: Lines) -> UsageError:
    words: dict[type[ast.stmt], str] = {
        ast.For: "the for loop",
        ast.While: "the while loop",
        ast.If: "the if",
        ast.With: "the with",
        ast.Try: "the try",
        ast.FunctionDef: "the function",
    }
    word = words.get(type(statement), "the statement")
    return UsageError(
        f"region {lines}: the lines cut through {word} at lines {_first(statement)} to {_last(statement)}: select "
        "all of it, or statements of one block in it"
    )
