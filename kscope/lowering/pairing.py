"""Checks the pairing of enters and exits: which regions are open where, over every path of a kernel."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from ..ptx.cfg import Block, Function, Statement

Open = tuple[tuple[str, int], ...]
"""Open names, sorted, each with how many times."""
Conditions = frozenset[tuple[str, bool]]
"""Predicate registers and their values."""
States = dict[Open, Conditions]
"""Names that may be open at one place, and the conditions that hold then."""

MAX_STATES = 64
"""At one place: enough for six open regions with a condition each."""
_AGAIN = "is entered while it is open"
_MEET = "is open on one path and closed on another where they meet"
_MANY = "is under too many conditions to follow"
_OPEN = "is still open where the kernel returns"
_CLOSED = "is left without having been entered"
_LOGIC = re.compile(r"\s*(or|and|not|mov)\.pred\s+([%\w$]+),\s*([-%\w$]+)(?:,\s*([-%\w$]+))?\s*;")
_DECLARED = re.compile(r"\s*\.reg\s*\.pred\b([^;]*)")
_FIRST = re.compile(r"\s*(?:@!?\s*[%\w$]+\s+)?[\w.:]+(?:\s+([^,;]*))?")
_WORD = re.compile(r"[%\w$]+")
_CONSTANTS = {"0": False, "1": True, "-1": True}


@dataclass(frozen=True)
class Fault:
    """A region that does not pair. source: (file number, line), (0, 0) if unknown."""

    name: str
    text: str
    source: tuple[int, int]


@dataclass(frozen=True)
class Pairing:
    """The result of check().

    Attributes:
        depths: number of open regions of the same name around each enter and exit, by statement index.
        faults: the first fault of each name with a fault.
    """

    depths: dict[int, int]
    faults: tuple[Fault, ...]


def check(function: Function, graph: Sequence[Block]) -> Pairing:
    """Follow every path.

    Records exist only at an exit, so a mark that a compiler deleted, a region left open, or a name entered again while
    it is open would give no record or a wrong start.

    Compilers guard pieces of a loop's body by one condition each (Triton's pipeliner does, on Blackwell):

        @!%p8 bra L1;  enter load;  L1:  ...  @!%p8 bra L2;  exit load;  L2:

    At L1 "load" is open where %p8 is true and closed where it is false. That is no fault while %p8 distinguishes the
    two, so the conditions of each set of open names are kept, and followed through `or.pred` and the like, and through
    constants.

    A thread that leaves by `exit` inside a region (asm("exit;") in C++; kernels end with `ret`) makes no record. The
    compiler does not know that instruction and places the region's exit after it, so the check continues there.

    Faults are: open on one path only, open where the kernel returns, exit without enter, an explicit enter while open
    (a `with` may nest in its own name, as in recursion), and more conditions than can be followed.
    """
    statements, text = function.statements, function.text
    found = _Pass(statements, graph).run()
    if not found.faults:
        return found
    logic = {i: match for i, s in enumerate(statements) if (match := _LOGIC.fullmatch(text, s.start, s.end))}
    words = {s.predicate for s in statements if s.sort in ("jump", "leave") and s.predicate}
    words.update(word for match in logic.values() for word in match.group(2, 3, 4) if word)
    guards = frozenset(words - _CONSTANTS.keys() - _local(function, words))
    return _Pass(statements, graph, guards, _writes(function, guards), logic).run()


def _local(function: Function, words: Iterable[str]) -> set[str]:
    """The words that are declared within braces: outside, another register may have that name."""
    braced = (s for s in function.statements if s.scope and s.sort == "other")
    found = (_DECLARED.match(function.text, s.start, s.end) for s in braced)
    declared = {word for match in found if match for word in _WORD.findall(match[1])}
    return {word for word in words if word in declared or word.rstrip("0123456789") in declared}


def _writes(function: Function, guards: frozenset[str]) -> dict[int, frozenset[str]]:
    """Statement index -> guards that it may change: those in its first operand, or all if unknown. Barriers write some,
    too.
    """
    writes: dict[int, frozenset[str]] = {}
    for i, statement in enumerate(function.statements):
        if statement.sort == "call":
            writes[i] = guards
        elif statement.sort in ("other", "access", "wait"):
            first = _FIRST.match(function.text, statement.start, statement.end)
            changed = guards.intersection(_WORD.findall(first[1] or "")) if first else guards
            if changed:
                writes[i] = changed
    return writes


@dataclass
class _Pass:
    """One pass to a fixed point. guards: predicates whose branches are correlated. A name with a fault is not followed
    further.
    """

    statements: Sequence[Statement]
    graph: Sequence[Block]
    guards: frozenset[str] = frozenset()
    writes: Mapping[int, frozenset[str]] = field(default_factory=dict)
    logic: Mapping[int, re.Match[str]] = field(default_factory=dict)
    depths: dict[int, int] = field(default_factory=dict)
    faults: dict[str, Fault] = field(default_factory=dict)

    def run(self) -> Pairing:
        at_entry: dict[int, States] = {0: {(): frozenset()}}
        work = [0] if self.graph else []
        while work:
            number = work.pop()
            after = self._through(self.graph[number], at_entry[number])
            for successor, arriving in self._onward(number, after):
                known = at_entry.get(successor)
                joined = self._joined(known, arriving, self.statements[self.graph[successor].first])
                if joined and joined != known:
                    at_entry[successor] = joined
                    work.append(successor)
        return Pairing(self.depths, tuple(self.faults.values()))

    def _onward(self, number: int, after: States) -> Iterator[tuple[int, States]]:
        """The successors of a block, each with the states that arrive there: a branch fixes its guard."""
        block = self.graph[number]
        last = self.statements[block.last - 1] if block.last > block.first else None
        branches = last is not None and last.sort in ("jump", "leave") and last.predicate in self.guards
        two_ways = len(block.successors) == len(set(block.successors)) <= 2
        for successor in block.successors:
            if last is None or not branches or not two_ways:
                yield successor, after
            else:
                falls = successor == number + 1
                yield successor, _given(after, (last.predicate, last.negated if falls else not last.negated))
        if last is not None and _goes_on(last) and number + 1 < len(self.graph):
            yield number + 1, {opened: held for opened, held in after.items() if opened}

    def _through(self, block: Block, states: States) -> States:
        states = self._merged(states.items())
        for i in range(block.first, block.last):
            statement = self.statements[i]
            if statement.mark is not None:
                states = self._marked(i, statement, states)
            elif statement.sort == "leave":
                if not _goes_on(statement) or i + 1 == len(self.statements):
                    condition = (statement.predicate, not statement.negated)
                    leaving = _given(states, condition if statement.predicate in self.guards else None)
                    names = {name for opened in leaving for name, _ in opened}
                    states = self._faulty(states, names, _OPEN, statement)
            elif changed := self.writes.get(i):
                states = self._changed(i, changed, states)
        return states

    def _marked(self, i: int, statement: Statement, states: States) -> States:
        mark = statement.mark
        assert mark is not None
        if mark.act not in ("enter", "exit") or mark.name in self.faults:
            return states
        least, *more = {dict(opened).get(mark.name, 0) for opened in states}
        if more:
            return self._faulty(states, [mark.name], _MEET, statement)
        if mark.act == "enter" and mark.how == "call" and least:
            return self._faulty(states, [mark.name], _AGAIN, statement)
        if mark.act == "exit" and not least:
            return self._faulty(states, [mark.name], _CLOSED, statement)
        step = 1 if mark.act == "enter" else -1
        self.depths[i] = least + min(step, 0)
        return {_counted(opened, mark.name, step): held for opened, held in states.items()}

    def _changed(self, i: int, changed: frozenset[str], states: States) -> States:
        """The states after a statement that writes guards."""
        logic = self.logic.get(i)
        if logic is None and not any(name in changed for held in states.values() for name, _ in held):
            return states
        new = ((opened, _without(held, changed) | _follows(logic, held)) for opened, held in states.items())
        return self._separated(self._merged(new), self.statements[i])

    def _joined(self, known: States | None, arriving: States, statement: Statement) -> States:
        if known is None:
            return arriving
        joined = self._merged([*known.items(), *arriving.items()])
        return known if joined == known else self._separated(joined, statement)

    def _merged(self, states: Iterable[tuple[Open, Conditions]]) -> States:
        """Merge states with the same open names: only their common conditions are known."""
        merged: States = {}
        for opened, held in states:
            if self.faults:
                opened = tuple(one for one in opened if one[0] not in self.faults)
            merged[opened] = merged[opened] & held if opened in merged else held
        return merged

    def _separated(self, states: States, statement: Statement) -> States:
        """The states, without the names in which two states differ that may hold at once."""
        while len(states) > 1:
            if len(states) > MAX_STATES:
                states = self._faulty(states, [max(_differing(states))], _MANY, statement)
                continue
            names = next((_differing(pair) for pair in combinations(states, 2) if not _exclude(states, *pair)), None)
            if names is None:
                break
            states = self._faulty(states, names, _MEET, statement)
        return states

    def _faulty(self, states: States, names: Collection[str], text: str, statement: Statement) -> States:
        """Note a fault for each name and drop these names from the states."""
        for name in sorted(names):
            self.faults.setdefault(name, Fault(name, text, statement.source))
        return self._merged(states.items()) if names else states


def _goes_on(statement: Statement) -> bool:
    """True if the statement leaves the kernel without the compiler's knowledge."""
    return statement.sort == "leave" and statement.name == "exit"


def _given(states: States, condition: tuple[str, bool] | None) -> States:
    """The states that are possible under a condition, with that condition."""
    if condition is None:
        return states
    opposite = (condition[0], not condition[1])
    return {opened: held | {condition} for opened, held in states.items() if opposite not in held}


def _exclude(states: States, one: Open, other: Open) -> bool:
    held = states[other]
    return any((name, not value) in held for name, value in states[one])


def _without(held: Conditions, names: frozenset[str]) -> Conditions:
    return frozenset(condition for condition in held if condition[0] not in names)


def _follows(logic: re.Match[str] | None, held: Conditions) -> Conditions:
    """The conditions that follow from a statement on predicates."""
    if logic is None:
        return frozenset()
    operation, into, *operands = logic.groups()
    known = _CONSTANTS | dict(held)
    values = [known.get(operand) for operand in operands if operand is not None]
    if operation in ("not", "mov"):
        result = None if values[0] is None else values[0] is (operation == "mov")
    else:
        decides = operation == "or"  # one true operand decides an or, one false one an and
        result = decides if decides in values else None if None in values else not decides
    return frozenset() if result is None else frozenset({(into, result)})


def _counted(opened: Open, name: str, step: int) -> Open:
    counts = dict(opened)
    counts[name] = counts.get(name, 0) + step
    return tuple(sorted((name, count) for name, count in counts.items() if count))


def _differing(states: Iterable[Open]) -> set[str]:
    """The names that are not open equally often in all states."""
    first, *others = map(set, states)
    return {name for other in others for name, _ in first ^ other}
