"""Finds loops of one basic block around one region, in which a store would delay every iteration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..marks.grammar import Mark
from ..ptx import cfg
from ..util.graph_walks import reached

_MEMORY = re.compile(
    r"(?:@!?\s*[%\w$]+\s+)?(?:ldmatrix|stmatrix|wmma\.(?:load|store)|wgmma|tcgen05|multimem|clusterlaunchcontrol"
    r"|fence|membar|griddepcontrol|nanosleep)\b"
)
"""More instructions that wait for memory or for other units, which cfg.py does not distinguish."""
_PLAIN = re.compile(
    r"(?:@!?\s*[%\w$]+\s+)?(?:ldu?|st|atom|red|tex|tld4|suld|sust|prefetch)\b(?!\.(?:async|bulk|tensormap)\b)"
)
"""Further instructions that wait for memory or for other units, which cfg.py does not distinguish."""
LONG = 24
"""Statements that take about as long as a store takes to read its registers. If the assembler makes fewer instructions
of them, the end of a region is read late by the missing cycles.
"""


@dataclass(frozen=True)
class Loop:
    """A loop.

    Attributes:
        number: of the loop in its function.
        enter, leave: statement indices of its region's marks.
        mark: the mark at `leave`.
        entries: statement indices where control enters the loop, before which the registers are initialized.
        nested: it is in another loop.
        memory: it does more than arithmetic.
    """

    number: int
    enter: int
    leave: int
    mark: Mark
    entries: frozenset[int]
    nested: bool = False
    memory: bool = False

    @property
    def long(self) -> bool:
        """True if the previous store has read its registers by the region's end. Then the clock may be read into one of
        them, and the count hides in the region's arithmetic without making it seem longer.
        """
        return self.leave - self.enter > LONG


def loops(function: cfg.Function, graph: Sequence[cfg.Block]) -> list[Loop]:
    """The loops of one basic block with one region, whose marks have no predicates, and no barrier, copy, wait or call.

    A store keeps its registers until it has read them, some 24 cycles on an H200. If the loop's next begin reads the
    clock into one of them, or the address of the next load is computed in one, that waits (12 cycles of a region around
    64 FMAs, 7 of an empty one). In such a loop a record has separate registers, into which its words are copied as late
    as possible; if the loop also loads, only if the kernel has spare registers (register_budget.py). In loops with
    waits and barriers the store is hidden, and four more registers cost such kernels 1 to 4 %.
    """
    found: list[Loop] = []
    for n, block in enumerate(graph):
        inside = function.statements[block.first : block.last]
        if n not in block.successors or inside[-1].sort != "jump" or inside[0].sort != "label":
            continue
        if any(s.scope or s.sort in ("wait", "call") for s in inside):
            continue
        accesses = [s for s in inside if s.sort == "access"]
        if not all(_PLAIN.match(function.text, s.start, s.end) for s in accesses):
            continue
        if any(_MEMORY.match(function.text, s.start, s.end) for s in inside):
            continue
        marks = [(block.first + i, s.mark) for i, s in enumerate(inside) if s.mark is not None]
        if [mark.act for _, mark in marks] != ["enter", "exit"] or any(mark.when for _, mark in marks):
            continue
        if len({mark.name for _, mark in marks}) > 1:
            continue
        entries = _entries(n, function, graph)
        if entries:
            found.append(Loop(len(found), marks[0][0], *marks[1], entries, _is_nested(n, graph), bool(accesses)))
    return found


def _is_nested(n: int, graph: Sequence[cfg.Block]) -> bool:
    """True if block n, a loop, is in another loop: a way leads from it through other blocks back to it."""
    return n in reached((one for one in graph[n].successors if one != n), lambda one: graph[one].successors)


def _entries(n: int, function: cfg.Function, graph: Sequence[cfg.Block]) -> frozenset[int]:
    """The jumps to block n from elsewhere, and its label if control falls into it; empty if one of them is in a
    scope.
    """
    found: set[int] = set()
    for other, block in enumerate(graph):
        if n not in block.successors or other == n:
            continue
        last = function.statements[block.last - 1]
        falls = other + 1 == n and (last.sort not in ("jump", "leave") or bool(last.predicate))
        if falls:  # not at a jump, which may enter another loop
            found.add(graph[n].first)
        if block.successors.count(n) > falls:
            if last.scope:
                return frozenset()
            found.add(block.last - 1)
    return frozenset(found)
