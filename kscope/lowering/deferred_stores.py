"""Where loops store records while the tensor cores work, including those of the previous iteration.

wait for a stage                              region: pending
wgmma.mma_async ...
<- shadow: records of the previous iteration are stored, and those that are pending
wgmma.commit_group, wgmma.wait_group 0        region
arrive at a barrier                           instant
jump                                          <- end: records that are pending stay in registers
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise

from ..ptx import cfg
from .pipeline_marks import is_of_lane_0, is_wait, waits

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Deferral:
    """Statements by their indices, and the numbers of ends.

    Attributes:
        ends: jumps before which records stay in registers; the number of each.
        shadows: marks before which records are stored; the ends of their loops.
        within: statements of these loops at which records of earlier iterations may wait; the ends of the loops.
        exits: the first statements after the loops; the ends of the loops.
        later: statements whose records stay in registers at an end, however many are pending.
        through: statements within loops that only wait for a barrier: records may be pending across them.
    """

    ends: dict[int, int] = field(default_factory=dict)
    shadows: dict[int, Numbers] = field(default_factory=dict)
    within: dict[int, Numbers] = field(default_factory=dict)
    exits: dict[int, Numbers] = field(default_factory=dict)
    later: set[int] = field(default_factory=set)
    through: frozenset[int] = frozenset()


def deferral(function: cfg.Function, graph: Sequence[cfg.Block]) -> Deferral:
    """Where records of a kernel with auto="pipeline" are stored.

    Stores between a wait for products and the next products make the kernel slower; in the shadow of products they are
    free. The order of records stays that of their ends: before anything else is stored in the loop, and after it,
    records of the previous iteration are stored.

    Args:
        function: the kernel.
        graph: its blocks.
    """
    begins = {i: one.mark for i, one in enumerate(function.statements) if one.mark is not None and waits(one.mark)}
    marks = {i for i, mark in begins.items() if mark.act == "enter" and is_of_lane_0(mark)}
    loops = [i for i, mark in begins.items() if is_wait(mark) and mark.act in ("enter", "exit")]
    through = (range(one + 1, other) for one, other in pairwise(loops) if begins[one].act == "enter")
    found = Deferral(through=frozenset().union(*through))
    waiting = {n for n, block in enumerate(graph) if not marks.isdisjoint(range(block.first, block.last))}
    for loop in _innermost(graph, waiting, frozenset(range(len(graph)))) if waiting else ():
        last = {n: graph[n].last - 1 for n in sorted(waiting & loop)}
        jumps = [end for end in last.values() if function.statements[end].sort == "jump"]
        numbers = tuple(range(len(found.ends), len(found.ends) + len(jumps)))
        found.ends.update(zip(jumps, numbers, strict=True))
        for n in sorted(loop):
            of_block = range(graph[n].first, graph[n].last)
            shadow = min(marks.intersection(of_block), default=graph[n].last)
            found.shadows.update({shadow: numbers} if n in last else {})
            found.later.update(range(shadow, graph[n].last) if last.get(n) in found.ends else ())
            found.within.update(dict.fromkeys(range(graph[n].first, shadow), numbers))
        for n in sorted({other for one in loop for other in graph[one].successors} - loop):
            of_block = range(graph[n].first, graph[n].last)
            first = next((i for i in of_block if function.statements[i].sort != "label"), graph[n].last)
            found.exits[first] = (*found.exits.get(first, ()), *numbers)
    return found


def _innermost(graph: Sequence[cfg.Block], waiting: Set[int], within: frozenset[int]) -> Iterator[frozenset[int]]:
    """The innermost loops with some of the blocks `waiting`."""
    for cycle in cfg.cycles(graph, within):
        loop = frozenset(cycle)
        inner = [*_innermost(graph, waiting, loop - {min(loop)})]
        if inner:
            yield from inner
        elif not waiting.isdisjoint(loop):
            yield loop
