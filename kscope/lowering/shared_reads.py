"""Begins right behind ends: where a basic block has several, both marks are one reading of the clock.

A clock read is a fence to the assembler's scheduler, and two in a row say the same time twice. With four such pairs in
its loop fused attention takes 1.5 % less where they share; with one, a matmul takes 1.4 % more (docs/performance.md).
What lives here: which begins share. What does not: their text (ptx/record.py).
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from ..instrument.recording import Recording
from ..marks.grammar import Mark
from . import cfg

SEVERAL = 3
"""Pairs in a block from which on they share."""


def shared(function: cfg.Function, graph: Sequence[cfg.Block], kept: Set[int], recording: Recording) -> frozenset[int]:
    """Indices of begins that are the reading of the end right before them; `kept`: marks that are recorded. None in
    blocks in which a record is stored before their end, as the store, and the claim that the first one waits for, may
    stand between the two marks and would be in the next region."""
    found: set[int] = set()
    for block in graph:
        inside = [i for i in range(block.first, block.last) if i in kept]
        pairs = [i for i in inside if i - 1 in inside and _adjacent(function, i)]
        if len(pairs) >= SEVERAL and _all_wait([function.statements[i].mark for i in inside], recording):
            found.update(pairs)
    return frozenset(found)


def _all_wait(marks: Sequence[Mark | None], recording: Recording) -> bool:
    """Whether the records of all these marks of a block wait for its end: not too many, and none of a name again."""
    ended: set[str] = set()
    for mark in marks:
        if mark is None or mark.name in ended:
            return False
        if mark.act in ("exit", "instant", "counter"):
            ended.add(mark.name)
    return len(ended) <= recording.pending and not recording.live


def _adjacent(function: cfg.Function, i: int) -> bool:
    end, begin = function.statements[i - 1].mark, function.statements[i].mark
    return end is not None and begin is not None and (end.act, begin.act) == ("exit", "enter")
