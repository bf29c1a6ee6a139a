"""Jumps and a region: which statements leave it early, and refusing those that enter it elsewhere than at its begin."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .choosing import Chosen, Source
from .statements import Label, Statement

_JUMPS = ("return", "break", "continue", "goto")
_LOCAL = {"struct", "class", "union"}
_DEFINED = re.compile(r"#\s*define\s+([\w$]+)(.*)", re.S)
_JUMP = re.compile(r"\b(return|break|continue|goto)\b")


def jumps(source: Source, chosen: Chosen) -> list[Statement]:
    """The jumps among the chosen statements that leave them. Raises UsageError that names the line, for jumps into the
    midst of them and for what cannot be followed."""
    _check_macros(source, chosen)
    _check_entries(source, chosen)
    found: list[Statement] = []
    inner = {label.word for label in _labels(chosen)}
    for statement in chosen.statements:
        found += _leaving(source, chosen, statement, inner, loop=False, switch=False)
    return found


def _leaving(
    source: Source, chosen: Chosen, statement: Statement, inner: set[str], *, loop: bool, switch: bool
) -> Iterator[Statement]:
    """loop, switch: whether one of them, in the region, is what a break or continue here belongs to."""
    if (
        statement.sort == "return"
        or (statement.sort == "break" and not (loop or switch))
        or (statement.sort == "continue" and not loop)
        or (statement.sort == "goto" and statement.word not in inner)
    ):
        if not statement.word and statement.sort == "goto":
            raise _refused(source, chosen, statement, "this goto has no label")
        yield statement
    if statement.sort == "plain":
        _check_plain(source, chosen, statement)
    for block in statement.blocks:
        for one in block.statements:
            hidden = _own_jumps(one) if statement.sort == "macro" else ()
            for jump in (jump for jump in hidden if jump.sort in ("break", "continue")):
                raise _refused(source, chosen, jump, "whether it is a loop that this jump leaves is hidden in a macro")
            yield from _leaving(
                source,
                chosen,
                one,
                inner,
                loop=loop or statement.sort == "loop",
                switch=switch or statement.sort == "switch",
            )


def _own_jumps(statement: Statement) -> Iterator[Statement]:
    """Jumps in a statement that belong to no loop or switch in it."""
    if statement.sort in _JUMPS:
        yield statement
    for block in () if statement.sort == "loop" else statement.blocks:
        for one in block.statements:
            yield from (jump for jump in _own_jumps(one) if not (statement.sort == "switch" and jump.sort == "break"))


def _labels(chosen: Chosen) -> list[Label]:
    """The labels among the chosen statements. Those before the first are outside: the region begins behind them."""
    return [
        label
        for statement in chosen.statements
        for one in statement.walk()
        for label in one.labels
        if one is not chosen.statements[0]
    ]


def _check_entries(source: Source, chosen: Chosen) -> None:
    """Nothing may jump into the midst of the region."""
    for statement in chosen.statements:
        for one in _cases(statement):
            if one is not chosen.statements[0]:
                raise _refused(source, chosen, one, "this case is jumped to from before the region")
    inside = {id(one) for statement in chosen.statements for one in statement.walk()}
    words = {label.word for label in _labels(chosen)} - {"case", "default"}
    for statement in chosen.root.statements:
        for one in statement.walk():
            if one.sort == "goto" and id(one) not in inside and one.word in words:
                raise _refused(source, chosen, one, f"this goto jumps into the midst of it, to {one.word}")


def _cases(statement: Statement) -> Iterator[Statement]:
    """Statements with a case or default of a switch around the given one."""
    if any(label.word in ("case", "default") for label in statement.labels):
        yield statement
    if statement.sort != "switch":
        for block in statement.blocks:
            for one in block.statements:
                yield from _cases(one)


def _check_plain(source: Source, chosen: Chosen, statement: Statement) -> None:
    """An expression may hide a jump (in `({ ... })`): only functions and classes in it may have some."""
    code = source.tokens.code[statement.key : statement.last + 1]
    if not _LOCAL.isdisjoint(token.text for token in code):
        return
    known = {at for body in statement.bodies for one in body.statements for at in range(one.key, one.last + 1)}
    for at, token in enumerate(code, statement.key):
        if token.kind == "word" and token.text in _JUMPS and at not in known:
            raise _refused(source, chosen, statement, f"a {token.text} in an expression cannot be followed")


def _check_macros(source: Source, chosen: Chosen) -> None:
    """Macros that are defined in this source and would leave the region, or have half of a block, are refused."""
    hidden: dict[str, tuple[str, int]] = {}
    for directive in source.tokens.directives:
        found = _DEFINED.match(directive.text)
        if found is None:
            continue
        jump, line = _JUMP.search(found[2]), source.tokens.line(directive.start)
        if jump is not None:
            hidden[found[1]] = f"has a {jump[1]}", line
        elif found[2].count("{") != found[2].count("}"):
            hidden[found[1]] = "has one half of a block", line
    first, last = chosen.statements[0], chosen.statements[-1]
    for token in source.tokens.code[first.key : last.last + 1] if hidden else ():
        if token.text in hidden:
            why, line = hidden[token.text]
            at = chosen.span.told(source.tokens.line(token.start))
            raise chosen.span.refused(
                f"line {at}: the macro {token.text} {why} (line {chosen.span.told(line)}), which cannot be followed"
            )


def _refused(source: Source, chosen: Chosen, statement: Statement, why: str) -> Exception:
    return chosen.span.refused(f"line {chosen.span.told(source.start(statement))}: {why}")
