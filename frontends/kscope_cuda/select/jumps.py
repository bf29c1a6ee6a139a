"""Finds the jumps that leave a region early, and rejects jumps into it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .ranges import Source, StatementRange
from .statements import JUMPS, Statement

_LOCAL = {"struct", "class", "union"}
_DEFINED = re.compile(r"#\s*define\s+([\w$]+)(.*)", re.S)
_JUMP = re.compile(r"\b(return|break|continue|goto)\b")


def jumps(source: Source, region: StatementRange) -> list[Statement]:
    """The jumps that leave the region. Raises UsageError with the line for jumps into it, and for macros and
    expressions that may jump."""
    _check_macros(source, region)
    _check_entries(source, region)
    inner = _labels(region)
    return [jump for one in region.statements for jump in _leaving(source, region, one, inner, False, False)]


def _leaving(
    source: Source, region: StatementRange, statement: Statement, inner: set[str], loop: bool, switch: bool
) -> Iterator[Statement]:
    """Jumps that leave the region. loop, switch: True if a break or continue here belongs to one inside the region."""
    if (
        statement.kind == "return"
        or (statement.kind == "break" and not (loop or switch))
        or (statement.kind == "continue" and not loop)
        or (statement.kind == "goto" and statement.target not in inner)
    ):
        if not statement.target and statement.kind == "goto":
            raise _error(source, region, statement, "this goto has no label")
        yield statement
    if statement.kind == "plain":
        _check_plain(source, region, statement)
    loop, switch = loop or statement.kind == "loop", switch or statement.kind == "switch"
    for block in statement.blocks:
        for one in block.statements:
            hidden = _free_jumps(one) if statement.kind == "macro" else ()
            for jump in (jump for jump in hidden if jump.kind in ("break", "continue")):
                raise _error(source, region, jump, "a macro may hide the loop that this jump leaves")
            yield from _leaving(source, region, one, inner, loop, switch)


def _free_jumps(statement: Statement) -> Iterator[Statement]:
    """Jumps in a statement outside its loops and switches."""
    if statement.kind in JUMPS:
        yield statement
    for block in () if statement.kind == "loop" else statement.blocks:
        for one in block.statements:
            yield from (jump for jump in _free_jumps(one) if not (statement.kind == "switch" and jump.kind == "break"))


def _labels(region: StatementRange) -> set[str]:
    """The labels inside the region; it begins after those of its first statement."""
    first = region.statements[0]
    inside = (one for statement in region.statements for one in statement.walk() if one is not first)
    return {label.name for one in inside for label in one.labels}


def _check_entries(source: Source, region: StatementRange) -> None:
    """Raise for jumps into the region."""
    for statement in region.statements:
        for one in _cases(statement):
            if one is not region.statements[0]:
                raise _error(source, region, one, "the switch before the region jumps to this case")
    inside = {id(one) for statement in region.statements for one in statement.walk()}
    names = _labels(region) - {"case", "default"}
    for statement in region.root.statements:
        for one in statement.walk():
            if one.kind == "goto" and id(one) not in inside and one.target in names:
                raise _error(source, region, one, f"this goto jumps into the region, to {one.target}")


def _cases(statement: Statement) -> Iterator[Statement]:
    """Statements in this one with a case or default of the switch around it."""
    if any(label.name in ("case", "default") for label in statement.labels):
        yield statement
    if statement.kind != "switch":
        for block in statement.blocks:
            for one in block.statements:
                yield from _cases(one)


def _check_plain(source: Source, region: StatementRange, statement: Statement) -> None:
    """Raise for a jump in an expression, as in `({ ... })`; functions and classes in it may have jumps."""
    code = source.tokens.code[statement.keyword : statement.last + 1]
    if not _LOCAL.isdisjoint(token.text for token in code):
        return
    parsed = {at for body in statement.bodies for one in body.statements for at in range(one.keyword, one.last + 1)}
    for at, token in enumerate(code, statement.keyword):
        if token.kind == "identifier" and token.text in JUMPS and at not in parsed:
            raise _error(source, region, statement, f"a {token.text} in an expression is not supported")


def _check_macros(source: Source, region: StatementRange) -> None:
    """Raise for macros of this source that contain a jump or half of a block."""
    hidden: dict[str, tuple[str, int]] = {}
    for directive in source.tokens.directives:
        found = _DEFINED.match(directive.text)
        if found is None:
            continue
        jump, line = _JUMP.search(found[2]), source.tokens.line(directive.start)
        if jump is not None:
            hidden[found[1]] = f"contains a {jump[1]}", line
        elif found[2].count("{") != found[2].count("}"):
            hidden[found[1]] = "contains half of a block", line
    first, last = region.statements[0], region.statements[-1]
    for token in source.tokens.code[first.keyword : last.last + 1] if hidden else ():
        if token.text in hidden:
            reason, line = hidden[token.text]
            at, defined = map(region.lines.user_line, (source.tokens.line(token.start), line))
            raise region.lines.error(
                f"line {at}: the macro {token.text} {reason} (line {defined}), which is not supported"
            )


def _error(source: Source, region: StatementRange, statement: Statement, reason: str) -> Exception:
    return region.lines.error(f"line {region.lines.user_line(source.start(statement))}: {reason}")
