"""Begins right behind ends: where a basic block has several, both marks are one reading of the clock.

A clock read is a fence to the assembler's scheduler, and two in a row say the same time twice. With four such pairs in
its loop fused attention takes 1.5 % less where they share; with one, a matmul takes 1 % more (docs/performance.md).
What lives here: which begins share. What does not: their text (ptx/record.py).
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from ..recording import Recording
from . import cfg

SEVERAL = 3
"""Pairs in a block from which on they share."""


def shared(function: cfg.Function, graph: Sequence[cfg.Block], kept: Set[int], recording: Recording) -> frozenset[int]:
    """Indices of begins that are the reading of the end right before them; `kept`: marks that are recorded. None where
    a record is stored as soon as its region ends: that would be in the next region."""
    found: set[int] = set()
    for block in graph if recording.pending and not recording.live else ():
        pairs = [i for i in range(block.first + 1, block.last) if {i - 1, i} <= kept and _adjacent(function, i)]
        if len(pairs) >= SEVERAL:
            found.update(pairs)
    return frozenset(found)


def _adjacent(function: cfg.Function, i: int) -> bool:
    end, begin = function.statements[i - 1].mark, function.statements[i].mark
    return end is not None and begin is not None and (end.act, begin.act) == ("exit", "enter")
