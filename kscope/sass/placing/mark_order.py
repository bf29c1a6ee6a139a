"""Proves marks in machine code: on every path they come in an order that the text has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise, permutations

from ...errors import UnsupportedError
from ..cubin.instructions import BYTES
from .basic_blocks import LOADS, MOVED, NEVER, Machine, Text
from .flow import bits
from .operands import Source

BEGIN, END, BUSY = -1, -2, -3
"""The entry, the exits, and the entry after a store, as events; others are statements."""
_STORES = MOVED - LOADS
_MOST = 5
"""Marks at one address for which an order is searched."""


@dataclass(frozen=True)
class Spot:
    """Where a mark's instructions are inserted.

    Attributes:
        mark: its number.
        at: the instruction before which they are inserted.
        outside: instructions from the other side of the mark that the schedule moved to this one.
        behind_wait: a barrier or a wait precedes so closely that it may not have stopped the warp yet.
        guard: predicate under which the mark's code runs there; empty for always.
        value, when: the instructions that hold its value and its predicate there; None if it has none in a register.
        after: the mark's instructions follow the instruction at `at`, the last one of its block.
        choices: the instructions of the block before which it could be inserted as well.
        source: for a mark of a pipeline, where its record's value comes from.
    """

    mark: int
    at: int
    outside: int
    behind_wait: bool
    guard: str = ""
    value: int | None = None
    when: int | None = None
    after: bool = False
    choices: frozenset[int] = frozenset()
    source: Source | None = None

    @property
    def next(self) -> int:
        """The instruction that follows the mark."""
        return self.at + BYTES if self.after else self.at


@dataclass
class _Follows:
    """Events that may follow an event in the text."""

    text: Text
    known: dict[int, frozenset[int]] = field(default_factory=dict)

    def __call__(self, one: int, other: int) -> bool:
        if one not in self.known:
            self.known[one] = frozenset(following(self.text, one, loops=True))
        return other in self.known[one]


def following(text: Text, event: int, loops: bool = False) -> Iterator[int]:
    """The statements up to the next mark on every way from an event, with that mark; END for an exit.

    Args:
        text: the text.
        event: a mark, BEGIN or BUSY.
        loops: True if a loop may have no iteration: ptxas splits one loop into several, and each of these may have
            none. copies.py proves how often marks run.
    """
    marks, statements = frozenset(text.marks), text.labels.kernel.statements
    start = (0, -1) if event in (BEGIN, BUSY) else (text.block[event], event)
    work, seen = [start], set[int]()
    while work:
        block, last = work.pop()
        for statement in text.within(block):
            if statement <= last:
                continue
            yield statement
            if statement in marks:
                break
            if statements[statement].sort == "leave":
                yield END
        else:
            ways = list(text.labels.blocks[block].successors)
            if not ways:
                yield END
            while ways:
                to = ways.pop()
                if to not in seen:
                    seen.add(to)
                    work.append((to, -1))
                    ways += _behind_loop(text, to) if loops else ()


def _behind_loop(text: Text, block: int) -> Iterator[int]:
    """Statements that follow a loop which begins with a block."""
    inside = text.flow.loops.get(block, 0)
    for one in bits(inside):
        yield from (to for to in text.flow.successors[one] if not inside >> to & 1)


def ordered(text: Text, spots: Sequence[Spot]) -> tuple[Spot, ...]:
    """The spots, those at one address in an order that the text has."""
    follows, found = _Follows(text), list[Spot]()
    for _, here in groupby(spots, key=lambda spot: (spot.at, spot.after)):
        some = tuple(here)
        tries: Iterable[tuple[Spot, ...]] = permutations(some) if 2 <= len(some) <= _MOST else (some,)
        found += next((one for one in tries if _in_order(text, follows, one)), some)
    return tuple(found)


def _in_order(text: Text, follows: _Follows, spots: Sequence[Spot]) -> bool:
    return all(follows(text.marks[a.mark], text.marks[b.mark]) for a, b in pairwise(spots))


def check(text: Text, machine: Machine, spots: Sequence[Spot]) -> None:
    """Refuse marks whose order on some path is not an order of the text.

    Events are marks and landmarks. Every two that follow each other on some path of the machine code must do so in the
    text, from the entry to every exit. Only a path without any of these may be new: it records nothing. The open
    regions are followed along every path as well.

    Args:
        text, machine: the kernel.
        spots: the places of its marks.

    Raises:
        UnsupportedError: the order differs.
    """
    follows, events = _Follows(text), _events(text, machine, spots)
    states: dict[int, frozenset[int]] = {0: frozenset((BEGIN,))}
    regions: dict[int, tuple[str, ...]] = {0: ()}
    work = [0]
    while work:
        block = work.pop()
        state = _through(text, follows, events[block], states[block])
        opened = _opened(text, events[block], regions[block])
        for to in machine.flow.successors[block]:
            merged = states.get(to, frozenset()) | state
            if regions.setdefault(to, opened) != opened:
                raise UnsupportedError(
                    f"regions are open on one path and closed on another one: {_said(opened, regions[to])}"
                )
            if merged != states.get(to):
                states[to] = merged
                work.append(to)


Group = tuple[str, tuple[int, ...]]
"""Events under one guard; END under the guard of an exit."""


def _events(text: Text, machine: Machine, spots: Sequence[Spot]) -> Mapping[int, list[Group]]:
    """The events of each block in order, in groups of one guard."""
    marks = {key: [*some] for key, some in groupby(spots, key=lambda spot: (spot.at, spot.after))}
    found = dict[int, list[Group]]()
    for block in machine.flow.order:
        items = list[tuple[str, int]]()
        for one in machine.blocks[block]:
            items += [(spot.guard, text.marks[spot.mark]) for spot in marks.get((one.at, False), ())]
            statement = machine.statements.get(one.at)
            if one.name == "EXIT":
                items.append((one.guard if one.conditional else "", END))
            elif statement is not None and one.guard not in NEVER and text.fixed(one, statement):
                items.append((one.guard if one.conditional else "", statement))
            elif one.name in _STORES and one.guard not in NEVER:
                items.append((items[-1][0] if items else "", BUSY))  # also with a guard: other threads may store
            items += [(spot.guard, text.marks[spot.mark]) for spot in marks.get((one.at, True), ())]
        found[block] = [
            (guard, tuple(event for _, event in some)) for guard, some in groupby(items, key=lambda item: item[0])
        ]
    return found


def _through(text: Text, follows: _Follows, groups: Iterable[Group], state: frozenset[int]) -> frozenset[int]:
    """The last events after a block, from those before it; every two that follow each other are compared."""
    for guard, some in groups:
        before = state
        for event in some:
            if event == BUSY:
                before, state = (frozenset(BUSY if last == BEGIN else last for last in one) for one in (before, state))
                continue
            for last in state:
                if (last, event) == (BEGIN, END):  # ptxas leaves early where everything else is needless
                    continue
                if not follows(last, event) and not _together(text, last, event):
                    raise UnsupportedError(
                        f"{_named(text, event)} would follow {_named(text, last)} on a path of the machine code"
                    )
            if event != END:
                state = frozenset((event,))
        if guard:
            state = before if some[-1] == END else state | before
    return state


def _together(text: Text, one: int, other: int) -> bool:
    """True if two landmarks are in one block without a mark in between, where their order does not matter."""
    if min(one, other) < 0 or text.block[one] != text.block[other]:
        return False
    return not any(min(one, other) <= mark <= max(one, other) for mark in text.marks)


def _opened(text: Text, groups: Iterable[Group], opened: tuple[str, ...]) -> tuple[str, ...]:
    """The regions that are open at the end of a block."""
    marks = dict(zip(text.marks, text.labels.marks, strict=True))
    for guard, some in groups:
        before = opened
        for event in some:
            mark = marks.get(event)
            if event == END and opened:
                raise UnsupportedError(f"region {opened[-1]!r} would be open at an exit of the machine code")
            if mark is None:
                continue
            if mark.act == "enter":
                opened = (*opened, mark.name)
            elif mark.act == "exit":
                if mark.name not in opened:
                    raise UnsupportedError(f"region {mark.display_name} would end in the machine code without a begin")
                at = len(opened) - 1 - opened[::-1].index(mark.name)
                opened = (*opened[:at], *opened[at + 1 :])
        if guard and some[-1] == END:
            opened = before
        elif guard and opened != before:
            raise UnsupportedError(f"a region would begin or end under {guard} alone")
    return opened


def _named(text: Text, event: int) -> str:
    if event < 0:
        return "an exit" if event == END else "the entry"
    mark = text.labels.kernel.statements[event].mark
    if mark is not None:
        return f"the {mark.act} of {mark.display_name}"
    one = text.labels.kernel.statements[event]
    return repr(" ".join(text.labels.kernel.text[one.start : one.end].split())[:60])


def _said(one: tuple[str, ...], other: tuple[str, ...]) -> str:
    return f"{', '.join(map(repr, one)) or 'none'} and {', '.join(map(repr, other)) or 'none'}"
