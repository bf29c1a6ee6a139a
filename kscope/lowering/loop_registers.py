"""Loops of one basic block around one region: what a store holds up there, it holds up in every turn.

A store keeps its registers until it has read them, some 24 cycles on an H200. Where the loop's next begin reads the
clock into one of them it waits for that (12 cycles of a region behind 64 FMAs, 7 of an empty one); where the address of
its next load is computed in one of them, the load does. In such a loop a record therefore has registers of its own,
into which its words are copied as late as can be; where it also loads, if registers are spare: fit.py asks. Waits and
barriers hide the store, and four registers more cost such kernels 1 to 4 %. What lives here: which loops these are.
What does not: their text (ptx/tight.py), and who writes it where (emitting.py, hoist.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..marks.grammar import Mark
from . import cfg

_MEMORY = re.compile(
    r"(?:@!?\s*[%\w$]+\s+)?(?:ldmatrix|stmatrix|wmma\.(?:load|store)|wgmma|tcgen05|multimem|clusterlaunchcontrol"
    r"|fence|membar|griddepcontrol|nanosleep)\b"
)
"""More that waits for memory, or for other units, than cfg.py needs to know."""
_PLAIN = re.compile(
    r"(?:@!?\s*[%\w$]+\s+)?(?:ldu?|st|atom|red|tex|tld4|suld|sust|prefetch)\b(?!\.(?:async|bulk|tensormap)\b)"
)
"""Accesses that a thread makes for itself, unlike barriers and copies that are waited for."""
LONG = 24
"""Statements: about as long as a store takes to read its registers. Where the assembler makes few instructions of them,
the end of a region is read late by the cycles that are missing."""


@dataclass(frozen=True)
class Loop:
    """Indices of statements: the marks of its region, the latter of which is `mark`, and those that control comes from
    elsewhere through, before which the registers are made ready. number: of the loop, in its function. memory: it does
    more than arithmetic."""

    number: int
    enter: int
    leave: int
    mark: Mark
    entries: frozenset[int]
    memory: bool = False

    @property
    def long(self) -> bool:
        """Whether by the region's end the store before has read its registers, so that the clock may be read into one
        of them, and the count hides in the region's arithmetic: it seems no longer for that."""
        return self.leave - self.enter > LONG


def loops(function: cfg.Function, graph: Sequence[cfg.Block]) -> list[Loop]:
    """The loops of one basic block that has one region, placed by marks without predicates, and no barrier, copy, wait
    or call."""
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
            found.append(Loop(len(found), marks[0][0], *marks[1], entries, bool(accesses)))
    return found


def _entries(n: int, function: cfg.Function, graph: Sequence[cfg.Block]) -> frozenset[int]:
    """The jumps to block n from elsewhere, and its label where control falls into it; none where one is in a scope."""
    found: set[int] = set()
    for other, block in enumerate(graph):
        if n not in block.successors or other == n:
            continue
        last = function.statements[block.last - 1]
        falls = other + 1 == n and (last.sort not in ("jump", "leave") or bool(last.predicate))
        if falls:  # not at a jump to elsewhere, which may be another loop's
            found.add(graph[n].first)
        if block.successors.count(n) > falls:
            if last.scope:
                return frozenset()
            found.add(block.last - 1)
    return frozenset(found)
