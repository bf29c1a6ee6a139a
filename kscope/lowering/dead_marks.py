"""Finds names whose marks can never record, because every predicate is a constant 0."""

from __future__ import annotations

import re
from collections.abc import Set

from ..marks.grammar import NEVER
from ..ptx.cfg import Function

_WRITES = re.compile(r"(?:@\S+\s+)?(?P<op>\w[\w.:]*)\s+(?P<into>\{[^}]*\}|[^,;\[]*),(?P<value>[^;]*);")
_WORD = re.compile(r"[%\w$]+")


def dead_names(function: Function) -> frozenset[str]:
    """Names whose every mark has a predicate that is a constant false."""
    never = _zeros({mark.when for mark in function.marks if mark.when is not None}, function)
    dead = {mark.name for mark in function.marks if mark.when in never}
    alive = {m.name for m in function.marks if m.act in ("enter", "instant", "counter") and m.when not in never}
    return frozenset(dead - alive)


def _zeros(predicates: Set[str], function: Function) -> frozenset[str]:
    """The predicates that are 0, or a register that the function writes once, with 0."""
    written: dict[str, list[bool]] = {word: [] for word in predicates if word.startswith("%")}
    for statement in function.statements if written else ():
        if found := _WRITES.match(function.text, statement.start, statement.end):
            for word in written.keys() & _WORD.findall(found["into"]):
                written[word].append(found["op"].startswith("mov.") and found["value"].strip() == "0")
    return frozenset({word for word, zero in written.items() if zero == [True]} | (predicates & {NEVER}))
