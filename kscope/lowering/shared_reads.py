"""Regions that begin where another one ends: in blocks with several such pairs, both marks share one clock read."""

from __future__ import annotations

from collections.abc import Sequence, Set

from ..instrument.recording import Recording
from ..marks.grammar import Mark
from ..ptx import cfg

SEVERAL = 3
"""The fewest pairs in a block that share."""


def shared_clock_reads(
    function: cfg.Function, graph: Sequence[cfg.Block], kept: Set[int], recording: Recording
) -> frozenset[int]:
    """Statement indices of begins that use the clock read of the end before them.

    A clock read is a fence for the assembler's scheduler, and two in a row read the same time twice. With four such
    pairs in its loop, fused attention takes 1.5 % less time if they share; with one, a matmul takes 1.4 % more
    (docs/design/performance.md).

    Blocks in which a record is stored before the block's end have none: the store, and the claim that the first store
    waits for, may be placed between the two marks and would count to the next region.

    Args:
        function: the function.
        graph: its basic blocks.
        kept: statement indices of marks that are recorded.
        recording: the options.
    """
    found: set[int] = set()
    for block in graph:
        inside = [i for i in range(block.first, block.last) if i in kept]
        pairs = [i for i in inside if i - 1 in inside and _adjacent(function, i)]
        if len(pairs) >= SEVERAL and _all_wait([function.statements[i].mark for i in inside], recording):
            found.update(pairs)
    return frozenset(found)


def _all_wait(marks: Sequence[Mark | None], recording: Recording) -> bool:
    """True if all records of a block's marks wait for its end: not too many, and no name twice."""
    ended: set[str] = set()
    for mark in marks:
        if mark is None or mark.name in ended:
            return False
        if mark.act in ("exit", "instant", "counter"):
            ended.add(mark.name)
    return len(ended) <= recording.pending


def _adjacent(function: cfg.Function, i: int) -> bool:
    end, begin = function.statements[i - 1].mark, function.statements[i].mark
    return end is not None and begin is not None and (end.act, begin.act) == ("exit", "enter")
