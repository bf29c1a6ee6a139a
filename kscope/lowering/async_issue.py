"""Regions that begin a copy or a matrix product and do not wait for it: they show a few cycles, however long the work
takes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from ..ptx.cfg import Block, Function

Event = TypeVar("Event")
GUARD = r"\s*(?:@!?\s*[%\w$]+\s+)?"
_BARRIER = "mbarrier"
_ISSUES = tuple(
    (re.compile(GUARD + rf"({instruction})(?![\w:])"), frozenset(waits))
    for instruction, *waits in (
        (r"cp\.async(?=\.c[ag]\b)", "cp.async", _BARRIER),
        (
            r"(?:multimem\.)?cp\.(?:reduce\.)?async\.bulk(?:\.tensor)?(?!\.(?:commit_group|wait_group|prefetch))",
            "cp.async.bulk",
            _BARRIER,
        ),
        (r"(?:st|red)\.async", _BARRIER),
        (r"wgmma\.mma_async", "wgmma"),
        (r"tcgen05\.(?:mma|cp|shift)", _BARRIER),
        (r"tcgen05\.ld", "tcgen05::ld"),
        (r"tcgen05\.st", "tcgen05::st"),
    )
)
"""Asynchronous instructions, and the kinds of waits for them."""
_WAITS = tuple(
    (re.compile(GUARD + instruction), kind)
    for instruction, kind in (
        (r"cp\.async\.wait_(?:group|all)\b", "cp.async"),
        (r"cp\.async\.bulk\.wait_group\b", "cp.async.bulk"),
        (r"mbarrier\.(?:try|test)_wait\b", _BARRIER),
        (r"wgmma\.wait_group\b", "wgmma"),
        (r"tcgen05\.wait::ld\b", "tcgen05::ld"),
        (r"tcgen05\.wait::st\b", "tcgen05::st"),
    )
)
_KNOWN = re.compile(GUARD + r"(?:cp|multimem|st|red|mbarrier|wgmma|tcgen05)\.")
"""Beginning of every instruction above."""
_ASYNC = re.compile(r"async|tcgen05")
"""Substring of every asynchronous instruction."""
_ANYTHING = "anything"
"""The kind of wait that a call may contain."""


@dataclass(frozen=True)
class _Issue:
    """An asynchronous instruction, and the kinds of waits that end it."""

    instruction: str
    waits: frozenset[str]


def regions(function: Function, graph: Sequence[Block], depths: Mapping[int, int]) -> dict[str, str]:
    """The regions of a kernel that issue asynchronous work and wait for none of it, with the first such instruction.

    Follows the code of one thread from each enter to its exits. An instruction is waited for if a matching wait can
    come after it, before the region ends: a loop that waits for the copies of its previous iterations counts. A call
    may wait for anything.

    Args:
        function: the kernel.
        graph: its basic blocks.
        depths: of each enter and exit, see pairing.Pairing.
    """
    if not _ASYNC.search(function.text, function.open, function.close):
        return {}
    code = _Asynchronous(function, graph, depths, _events(function))
    if not any(isinstance(event, _Issue) for event in code.events.values()):
        return {}
    found: dict[str, str] = {}
    waited: set[str] = set()
    for i, statement in enumerate(function.statements):
        mark = statement.mark
        if mark is None or mark.act != "enter" or i not in depths or mark.name in waited:
            continue
        inside = code.until_exit(i, i)
        issues = [(at, event) for at in inside or () if isinstance(event := code.events[at], _Issue)]
        if inside is None or any(code.is_waited_for(at, event, i) for at, event in issues):
            waited.add(mark.name)
        elif issues:
            found.setdefault(mark.name, issues[0][1].instruction)
    return {name: instruction for name, instruction in found.items() if name not in waited}


@dataclass(frozen=True)
class Code(Generic[Event]):
    """A kernel with the instructions that matter, and the paths between its marks.

    Attributes:
        function: the kernel.
        graph: its basic blocks.
        depths: of each enter and exit, see pairing.Pairing.
        events: statement index -> event.
    """

    function: Function
    graph: Sequence[Block]
    depths: Mapping[int, int]
    events: Mapping[int, Event]

    @cached_property
    def _stops(self) -> list[list[int]]:
        """For each block, the relevant statements: marks, returns, issues and waits."""
        statements = self.function.statements
        return [
            [
                i
                for i in range(one.first, one.last)
                if i in self.events or i in self.depths or statements[i].sort == "leave"
            ]
            for one in self.graph
        ]

    def until_exit(self, start: int, enter: int) -> list[int] | None:
        """The events after statement `start` on any path until the region ends, in no order between blocks.

        None if a path leaves the kernel first: its exits are under conditions that are not followed here.
        """
        own = next(n for n, block in enumerate(self.graph) if block.first <= start < block.last)
        found: dict[int, None] = {}
        seen: set[int] = set()
        work = [(own, start)]
        while work:
            number, after = work.pop(0)
            for i in (i for i in self._stops[number] if i > after):
                if self._ends(i, enter):
                    break
                if self.function.statements[i].sort == "leave":
                    return None
                if i in self.events:
                    found[i] = None
            else:
                for successor in self.graph[number].successors:
                    if successor not in seen:
                        seen.add(successor)
                        work.append((successor, -1))
        return list(found)

    def _ends(self, i: int, enter: int) -> bool:
        """True if the region of a statement `enter` ends at a mark, or begins again."""
        mark, opened = self.function.statements[i].mark, self.function.statements[enter].mark
        same = mark is not None and opened is not None and mark.name == opened.name
        return same and self.depths.get(i) == self.depths[enter]


@dataclass(frozen=True)
class _Asynchronous(Code["_Issue | str"]):
    """A kernel with its asynchronous instructions and waits."""

    def is_waited_for(self, at: int, issue: _Issue, enter: int) -> bool:
        """True if a wait for an issue can come after it in the region."""
        waits = {*issue.waits, _ANYTHING}
        return any(self.events[i] in waits for i in self.until_exit(at, enter) or ())


def _events(function: Function) -> dict[int, _Issue | str]:
    """Statement index -> an issue, or the kind of a wait."""
    found: dict[int, _Issue | str] = {}
    for i, statement in enumerate(function.statements):
        if statement.sort == "call":
            found[i] = _ANYTHING
        elif statement.sort in ("access", "wait", "other"):
            event = _event(function.text, statement.start, statement.end)
            if event is not None:
                found[i] = event
    return found


def _event(text: str, start: int, end: int) -> _Issue | str | None:
    """The event of a statement."""
    if not _KNOWN.match(text, start, end):
        return None
    for pattern, kind in _WAITS:
        if pattern.match(text, start, end):
            return kind
    for pattern, waits in _ISSUES:
        if (found := pattern.match(text, start, end)) is not None:
            return _Issue(found[1], waits)
    return None
