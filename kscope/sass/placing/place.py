"""Chooses the places of marks: in each copy of their block, the one with the fewest instructions on the wrong side."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...errors import UnsupportedError
from ...marks.grammar import Mark
from ..checks.hazards import CONTROL_FLOW
from ..cubin.instructions import Instruction
from . import mark_order, pipeline, record_values
from .basic_blocks import LANDMARKS, Machine, Text
from .copies import Copy, Position, Unit, unit
from .mark_order import Spot

_WAITS = frozenset({"BAR", "SYNCS", "DEPBAR", "WARPGROUP"})
"""A clock read directly after these is issued before they complete."""
_AT_ONCE = "WARPGROUP.DEPBAR"
"""Stops the warp within its own cycles: ptxas lets a later instruction read what the tensor cores wrote."""
STOPS = 8
"""Cycles after which a barrier has stopped the warp; on an H200 it takes six."""
_HARD, _LOAD = 10_000, 8
"""Cost of a landmark or a load on the wrong side; other instructions cost 1."""


def spots(text: Text, machine: Machine) -> tuple[Spot, ...]:
    """The places of all marks of a kernel, in the order in which they are inserted at one address.

    A landmark is an instruction that ptxas keeps in the order of the marks: stores, barriers and waits. The schedule
    may move computations and loads across marks; it is left as it is.

    Raises:
        UnsupportedError: a mark has no places that certainly run as often as the mark.
    """
    units, own = dict[int, Unit](), pipeline.Pipeline(text, machine)
    found, machine, proved = [(0, spot.mark, spot) for spot in own.spots()], own.entered, own.relabeled
    waiting = defaultdict[Unit, list[int]](list)
    order = {block: number for number, block in enumerate(text.flow.order)}
    for number, statement in enumerate(text.marks):
        if pipeline.is_pipeline(text.labels.marks[number]):
            continue
        block, about = text.block[statement], _about(text.labels.marks[number])
        if block not in order:
            raise UnsupportedError(f"{about} cannot be reached")
        if block not in units:
            try:
                units[block] = unit(block, text, machine)
            except UnsupportedError as error:
                raise UnsupportedError(f"{about} is {error}") from None
        waiting[units[block]].append(number)
    ranked = sorted(
        ((number, one) for one, some in waiting.items() for number in some),
        key=lambda item: (order[text.block[text.marks[item[0]]]], item[0]),
    )
    single = [(number, one, copy) for number, one in ranked for copy in one.copies if copy.many == 1 and not copy.guard]
    others = [
        (number, one, copy)
        for one in waiting
        for copy in one.copies
        if copy.many > 1 or copy.guard
        for number in (number for number, other in ranked if other is one)
    ]
    ranks = {number: rank for rank, (number, _) in enumerate(ranked)}
    reached = dict[tuple[object, ...], Position]()  # by the marks so far, where several follow one another
    for number, one, copy in (*single, *others):
        within = (copy.chain,) if copy.many == 1 and not copy.guard else (copy.chain, copy.guard, one)
        spot, reached[within] = _Placing(text, machine, one, copy).spot(number, reached.get(within, (0, 0)))
        found.append((copy.number, ranks[number], spot))
    placed = tuple(spot for _, _, spot in sorted(found, key=lambda item: (item[2].at, item[2].after, item[0], item[1])))
    placed = mark_order.ordered(text, placed)
    mark_order.check(text, proved, placed)
    record_values.check(text, proved, placed)
    return placed


def _about(mark: Mark) -> str:
    return f"{mark.noun} {mark.display_name}: the code around its {mark.act}"


@dataclass(frozen=True)
class _Placing:
    """Finds the slots of the marks in one copy of a unit."""

    text: Text
    machine: Machine
    unit: Unit
    copy: Copy

    def spot(self, number: int, least: Position) -> tuple[Spot, Position]:
        """The place of a mark at or after `least`, and its position."""
        mark, statement = self.text.labels.marks[number], self.text.marks[number]
        first, last = self._window(statement, least)
        held = [None if one is None else self._landmark(one) for one in self.text.labels.held[statement]]
        if mark.act != "enter":  # which stores its record at once
            first, last = self._between_values(number, first, last)
        costs = self._costs(statement, first, last)
        if not costs:
            raise UnsupportedError(f"{_about(mark)} has memory accesses or values out of order in the machine code")
        latest = mark.act == "enter"
        best = min(costs.values())[0]
        slots = [slot for slot, (cost, _) in costs.items() if cost == best]
        slot = slots[-1] if latest else slots[0]
        if best >= _HARD:
            raise UnsupportedError(f"{_about(mark)} has memory accesses out of its order in the machine code")
        if any(one[0] != slot[0] for one in filter(None, held)):
            raise UnsupportedError(f"{_about(mark)} is in another block of the machine code than its value")
        block = self.machine.blocks[self.copy.chain[slot[0]]]
        behind, after = _is_behind_wait(block[: slot[1]]), slot[1] == len(block)
        value, when = (None if one is None else block[one[1]].at for one in held)
        at = block[slot[1] - after].at
        choices = frozenset(block[place].at for number, place in slots if number == slot[0] and place < len(block))
        return Spot(number, at, costs[slot][1], behind, self.copy.guard, value, when, after, choices), slot

    def _between_values(self, number: int, first: Position, last: Position) -> tuple[Position, Position]:
        """The slots after the values of the record that a mark stores, and before the values of the next ones."""
        text, landmarks = self.text, dict(self.copy.landmarks)
        mark, statement = text.labels.marks[number], text.marks[number]
        instant = mark.act != "exit"
        for other, held in text.labels.held.items():
            one = text.labels.mark(other)
            if one.name != mark.name or one.act != (mark.act if instant else "enter"):
                continue
            for place in (landmarks[holder] for holder in held if holder in landmarks):
                if other == statement or text.before(other, statement):
                    first = max(first, (place[0], place[1] + 1))
                elif text.before(statement, other):
                    last = min(last, place)
        return first, last

    def _end(self, block: int) -> int:
        """The last slot of a block: before the instruction that leaves it, or after its last one."""
        code = self.machine.blocks[block]
        return len(code) - (code[-1].name in CONTROL_FLOW)

    def _landmark(self, statement: int) -> Position:
        found = dict(self.copy.landmarks).get(statement)
        if found is None:
            mark = next(one for one, held in self.text.labels.held.items() if statement in held)
            raise UnsupportedError(f"{_about(self.text.labels.mark(mark))} has lost its value in the machine code")
        return found

    def _window(self, mark: int, least: Position) -> tuple[Position, Position]:
        """The first and the last slot between the landmarks on both sides, not before `least`."""
        chain = self.copy.chain
        first, last = least, (len(chain) - 1, self._end(chain[-1]))
        for number, block in enumerate(chain):
            for place, one, statement in self.machine.labeled(block):
                if not self.text.fixed(one, statement):
                    continue
                side = self._side((number, place), statement, mark, None)
                if side < 0:
                    first = max(first, (number, place + 1))
                elif side > 0:
                    last = min(last, (number, place))
        if self.copy.number and self.copy.first:  # of several in a chain
            first = max(first, self._behind_previous())
        if self.copy.number + 1 < self.copy.many:
            last = min(last, self._next_first())
        if self.copy.guard:
            first, last = self._guarded(first, last)
        return first, last

    def _behind_previous(self) -> Position:
        previous = next(one for one in self._siblings() if one.number == self.copy.number - 1)
        assert previous.last is not None
        return previous.last[0], previous.last[1] + 1

    def _next_first(self) -> Position:
        following = next(one for one in self._siblings() if one.number == self.copy.number + 1)
        assert following.first is not None
        return following.first

    def _siblings(self) -> Iterator[Copy]:
        """The copies in the same chain under the same predicate."""
        return (one for one in self.unit.copies if (one.chain, one.guard) == (self.copy.chain, self.copy.guard))

    def _guarded(self, first: Position, last: Position) -> tuple[Position, Position]:
        """The slots at which the copy's predicate has the value that its landmarks see."""
        assert self.copy.first is not None and self.copy.last is not None
        name, block = self.copy.guard.lstrip("@!"), self.machine.blocks[self.copy.chain[0]]
        writes = [place for place, one in enumerate(block) if name in one.writes]
        if any(self.copy.first[1] <= place <= self.copy.last[1] for place in writes):
            raise UnsupportedError(f"code under {name} in place of a branch: it is written again in between")
        ahead = max((place + 1 for place in writes if place < self.copy.first[1]), default=0)
        behind = min((place for place in writes if place > self.copy.last[1]), default=self._end(self.copy.chain[0]))
        return max(first, (0, ahead)), min(last, (0, behind))

    def _side(self, position: Position | None, statement: int, mark: int, number: int | None) -> int:
        """-1 if an instruction belongs before the mark, 1 if after it, 0 if unknown.

        Args:
            position: where it is in the chain; None elsewhere.
            statement: its statement.
            mark: the mark's statement.
            number: the copy to which it belongs; None to infer that from its position, if it is a landmark.
        """
        text, copy = self.text, self.copy
        if text.block[statement] in self.unit.blocks:
            own = number
            if own is None and position is not None and copy.many > 1:
                own = next(
                    (
                        one.number
                        for one in self._siblings()
                        if one.first is not None and one.last is not None and one.first <= position <= one.last
                    ),
                    None,
                )
                if own is None:
                    return 0
            if own is not None and own != copy.number:
                return -1 if own < copy.number else 1
        elif copy.many > 1 and self._in_loop_of_unit(statement):
            return 0
        return -1 if text.before(statement, mark) else 1 if text.before(mark, statement) else 0

    def _in_loop_of_unit(self, statement: int) -> bool:
        around = self.text.flow.around
        return around[self.text.block[statement]] >= around[self.unit.blocks[0]]

    def _costs(self, mark: int, first: Position, last: Position) -> dict[Position, tuple[int, int]]:
        """For each slot, the cost of the instructions on its wrong side, and their number."""
        chain, flow = self.copy.chain, self.machine.flow
        inside = range(first[0], last[0] + 1)
        between = [
            block
            for block in flow.order
            if block not in chain
            and first[0] < last[0]
            and flow.before(chain[first[0]], block)
            and flow.before(block, chain[last[0]])
        ]
        numbers = self._numbers()
        sides = {
            block: {
                place: (self._side(None, statement, mark, numbers.get((block, place))), one)
                for place, one, statement in self.machine.labeled(block)
            }
            for block in (*(chain[number] for number in inside), *between)
        }
        found = dict[Position, tuple[int, int]]()
        for number in inside:
            begin = first[1] if number == first[0] else 0
            end = last[1] if number == last[0] else self._end(chain[number])
            cost = many = 0
            for block, some in sides.items():
                ahead = block != chain[number] and (
                    flow.before(block, chain[number]) if block in between else chain.index(block) < number
                )
                for place, (side, one) in some.items():
                    wrong = side > 0 if ahead or (block == chain[number] and place < begin) else side < 0
                    if block in (chain[first[0]], chain[last[0]]) and not self._within(block, place, first, last):
                        continue
                    cost, many = cost + wrong * self._weight(one, block), many + wrong
            here = sides[chain[number]]
            for slot in range(begin, end + 1):
                found[number, slot] = cost, many
                if slot in here:
                    side, one = here[slot]
                    cost, many = cost + side * self._weight(one, chain[number]), many + side
        return found

    def _within(self, block: int, place: int, first: Position, last: Position) -> bool:
        number = self.copy.chain.index(block)
        return first <= (number, place) < last

    def _weight(self, one: Instruction, block: int) -> int:
        if self.text.fixed(one, self.machine.statements[one.at]):
            return _HARD
        return _LOAD if one.name in LANDMARKS else 1

    def _numbers(self) -> dict[tuple[int, int], int]:
        """The copy to which each instruction of the unit belongs, if its statement has one in each copy of the
        chain.
        """
        many = Counter[int]()
        places = defaultdict[int, list[tuple[int, int]]](list)
        for block in self.copy.chain:
            for place, _, statement in self.machine.labeled(block):
                if self.text.block[statement] in self.unit.blocks:
                    many[statement] += 1
                    places[statement].append((block, place))
        return {
            where: number
            for statement, count in many.items()
            if count == self.copy.many
            for number, where in enumerate(places[statement])
        }


def _is_behind_wait(ahead: Sequence[Instruction]) -> bool:
    """True if a wait was issued less than STOPS cycles before, and may not have stopped the warp yet."""
    cycles = 0
    for one in reversed(ahead):
        cycles += max(1, one.control.stall)
        if cycles >= STOPS or one.code.startswith(_AT_ONCE):
            return False
        if one.name in _WAITS:
            return True
    return False
