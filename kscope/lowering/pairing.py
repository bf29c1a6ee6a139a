"""Pairing is checked, not assumed: which regions are open where, over every path of a kernel.

Records exist only at an exit, so a mark that a compiler deleted, a region left open, or a name entered
again while it is open would give silence or a stale start. A forward pass finds each before any
instruction is emitted. What lives here: that pass, and the depth that it gives each mark. What does
not: reading PTX (cfg.py), and what is done about a fault (plan.py).

Compilers guard pieces of a loop's body by one condition each (Triton's pipeliner does, on Blackwell):

    @!%p8 bra L1;  enter load;  L1:  ...  @!%p8 bra L2;  exit load;  L2:

At L1 "load" is open where %p8 is true and closed where it is false. That is no fault as long as %p8
tells the two apart, so the pass keeps, beside each set of open names, the conditions that go with it,
and follows them through `or.pred` and its like.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .cfg import Block, Statement

Open = tuple[tuple[str, int], ...]
"""Names that are open, sorted, each with how many times."""
Conditions = frozenset[tuple[str, bool]]
"""Predicate registers and what they hold."""
States = dict[Open, Conditions]
"""What may be open at one place, and what is known to hold when it is."""

MAX_STATES = 16
_AGAIN = "is entered while it is open"
_MEET = "is open on one path and closed on another where they meet"
_LOGIC = re.compile(r"\s*(or|and|not|mov)\.pred\s+([%\w$]+),\s*([%\w$]+)(?:,\s*([%\w$]+))?\s*;")
_FIRST = re.compile(r"\s*(?:@!?\s*[%\w$]+\s+)?[\w.:]+(?:\s+([^,;]*))?")
_WORD = re.compile(r"[%\w$]+")


@dataclass(frozen=True)
class Fault:
    """One way in which a region does not pair; `source` = (file number, line), (0, 0) = not known."""

    name: str
    text: str
    source: tuple[int, int]


@dataclass(frozen=True)
class Pairing:
    """depths: for each enter and exit, by statement index, how many of its name were open outside it."""

    depths: dict[int, int]
    faults: tuple[Fault, ...]


def check(statements: Sequence[Statement], graph: Sequence[Block], text: str = "") -> Pairing:
    """Follows every path. Faults: open on one path only, open at the kernel's end, exit without enter, an explicit
    enter while open (a `with` may nest in its own name, as recursion does: its exit is the innermost one's).

    `text` is the module's; without it no two branches on one predicate are taken to go together.
    """
    found = _Pass(statements, graph).run()
    if not found.faults or not text:
        return found
    logic = {i: match for i, s in enumerate(statements) if (match := _LOGIC.fullmatch(text, s.start, s.end))}
    branches = {s.predicate for s in statements if s.sort in ("jump", "leave") and s.predicate}
    guards = frozenset(branches.union(*(match.group(2, 3, 4) for match in logic.values())) - {None})
    return _Pass(statements, graph, guards, _writes(statements, guards, text), logic).run()


def _writes(statements: Sequence[Statement], guards: frozenset[str], text: str) -> dict[int, frozenset[str]]:
    """Which guards a statement may change: those in its first operand, all of them where it is not known. Barriers
    write some, as setp does."""
    writes: dict[int, frozenset[str]] = {}
    for i, statement in enumerate(statements):
        if statement.sort == "call":
            writes[i] = guards
        elif statement.sort in ("other", "access", "wait"):
            first = _FIRST.match(text, statement.start, statement.end)
            changed = guards.intersection(_WORD.findall(first[1] or "")) if first else guards
            if changed:
                writes[i] = changed
    return writes


@dataclass
class _Pass:
    """One pass to a fixed point. `guards`: the predicates whose branches are taken to go together."""

    statements: Sequence[Statement]
    graph: Sequence[Block]
    guards: frozenset[str] = frozenset()
    writes: Mapping[int, frozenset[str]] = field(default_factory=dict)
    logic: Mapping[int, re.Match[str]] = field(default_factory=dict)
    depths: dict[int, int] = field(default_factory=dict)
    faults: dict[tuple[str, str], Fault] = field(default_factory=dict)

    def run(self) -> Pairing:
        at_entry: dict[int, States] = {0: {(): frozenset()}}
        work = [0] if self.graph else []
        while work:
            number = work.pop()
            after = self._through(self.graph[number], at_entry[number])
            for successor, condition in self._edges(number):
                arriving = _given(after, condition)
                known = at_entry.get(successor)
                joined = self._joined(known, arriving, self.statements[self.graph[successor].first])
                if joined and joined != known:
                    at_entry[successor] = joined
                    work.append(successor)
        return Pairing(self.depths, tuple(self.faults.values()))

    def _edges(self, number: int) -> Iterator[tuple[int, tuple[str, bool] | None]]:
        """Successors of a block, each with what the branch to it says of a guard."""
        block = self.graph[number]
        last = self.statements[block.last - 1] if block.last > block.first else None
        branches = last is not None and last.sort in ("jump", "leave") and last.predicate in self.guards
        two_ways = len(block.successors) == len(set(block.successors)) <= 2
        for successor in block.successors:
            if last is None or not branches or not two_ways:
                yield successor, None
            else:
                falls = successor == number + 1
                yield successor, (last.predicate, last.negated if falls else not last.negated)

    def _through(self, block: Block, states: States) -> States:
        for i in range(block.first, block.last):
            statement = self.statements[i]
            if statement.mark is not None:
                states = self._marked(i, statement, states)
            elif statement.sort == "leave":
                condition = (statement.predicate, not statement.negated) if statement.predicate in self.guards else None
                for name in {name for opened in _given(states, condition) for name, _ in opened}:
                    self._fault(name, "is still open where the kernel returns", statement)
            elif changed := self.writes.get(i):
                logic = self.logic.get(i)
                new = ((opened, _without(held, changed) | _follows(logic, held)) for opened, held in states.items())
                states = self._told_apart(_merged(new), statement)
        return states

    def _marked(self, i: int, statement: Statement, states: States) -> States:
        mark = statement.mark
        assert mark is not None
        if mark.act not in ("enter", "exit"):
            return states
        counts = {dict(opened).get(mark.name, 0) for opened in states}
        if len(counts) > 1:
            self._fault(mark.name, _MEET, statement)
        if mark.act == "enter" and mark.how == "call" and max(counts) > 0:
            self._fault(mark.name, _AGAIN, statement)
        step = 1 if mark.act == "enter" else -1
        depth = min(counts) + min(step, 0)
        if depth < 0:
            self._fault(mark.name, "is left without having been entered", statement)
        self.depths[i] = max(depth, 0)
        return _merged((_counted(opened, mark.name, step), held) for opened, held in states.items())

    def _joined(self, known: States | None, arriving: States, statement: Statement) -> States:
        if known is None:
            return arriving
        return self._told_apart(_merged([*known.items(), *arriving.items()]), statement)

    def _told_apart(self, states: States, statement: Statement) -> States:
        """The states, of which no two may hold at once; where two may, the later one goes."""
        kept: States = {}
        for opened, held in states.items():
            rival = next((other for other, its in kept.items() if not _exclude(held, its)), None)
            if rival is None and len(kept) < MAX_STATES:
                kept[opened] = held
                continue
            for name in _differing(rival or (), opened):
                self._fault(name, _MEET, statement)
        return kept

    def _fault(self, name: str, text: str, statement: Statement) -> None:
        self.faults.setdefault((name, text), Fault(name, text, statement.source))


def _given(states: States, condition: tuple[str, bool] | None) -> States:
    """The states that a condition leaves possible, with it."""
    if condition is None:
        return states
    opposite = (condition[0], not condition[1])
    return {opened: held | {condition} for opened, held in states.items() if opposite not in held}


def _merged(states: Iterable[tuple[Open, Conditions]]) -> States:
    """Where the same is open under different conditions, only what they share is known."""
    merged: States = {}
    for opened, held in states:
        merged[opened] = merged[opened] & held if opened in merged else held
    return merged


def _exclude(one: Conditions, other: Conditions) -> bool:
    return any((name, not value) in other for name, value in one)


def _without(held: Conditions, names: frozenset[str]) -> Conditions:
    return frozenset(condition for condition in held if condition[0] not in names)


def _follows(logic: re.Match[str] | None, held: Conditions) -> Conditions:
    """What a statement on predicates makes known, from what was known before it."""
    if logic is None:
        return frozenset()
    operation, into, *operands = logic.groups()
    known = dict(held)
    values = [known.get(operand) for operand in operands if operand is not None]
    if operation in ("not", "mov"):
        result = None if values[0] is None else values[0] is (operation == "mov")
    else:
        decides = operation == "or"  # one true operand decides an or, one false one an and
        result = decides if decides in values else None if None in values else not decides
    return frozenset() if result is None else frozenset({(into, result)})


def _counted(opened: Open, name: str, step: int) -> Open:
    counts = dict(opened)
    counts[name] = max(counts.get(name, 0) + step, 0)
    return tuple(sorted((name, count) for name, count in counts.items() if count))


def _differing(one: Open, other: Open) -> list[str]:
    return sorted({name for name, _ in set(one) ^ set(other)})
