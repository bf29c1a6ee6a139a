"""Which registers hold a region's record and what a lane knows: those that neither kernel nor fragment uses."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UnsupportedError
from ..marks.grammar import Mark
from .control import SCOREBOARDS
from .instructions import BRANCHES, BYTES, Function

DESCRIPTOR = 60
"""UR60 and UR61 hold the descriptor of global memory in the whole kernel, and before it the address of the control
block."""
RECORD = 4
"""Registers of a record, the first of which has a number that this divides."""
_NUMBERS, _PREDICATES = 255, 7
EXTRA = 2
"""A kernel's count of registers is its highest number, plus one, plus these."""


@dataclass(frozen=True)
class State:
    """Registers in which a recording lane keeps what it knows, from the claim to the exits.

    Attributes:
        base: low word of its slab's address.
        address: an even register: address of the next record without the head, and the high word, in the one behind.
            The high word is 0 in lanes that do not record.
        offset: 16 times the records so far.
        clocks: what the seal needs of the entry's clocks.
        last: offset of the last place in the slab's ring; None if it is the same in every launch.
        on: predicate: this lane records; None if the kernel leaves none free.
        scoreboard: counts stores until their operands were read.
    """

    base: int
    address: int
    offset: int
    clocks: int
    last: int | None
    on: int | None
    scoreboard: int


@dataclass(frozen=True)
class Allocation:
    """Registers of a kernel that records.

    Attributes:
        state: what a lane knows.
        records: for each mark, the first register of its region's record.
        own: records that belong to one region alone, with its name.
        count: registers a thread that the kernel needs.
    """

    state: State
    records: tuple[int, ...]
    own: dict[int, str]
    count: int


def check(marks: tuple[Mark, ...]) -> None:
    """Refuse marks that are not of plain regions, one in the other.

    Raises:
        UnsupportedError: one has a value, a predicate or a strategy, is no region's, or regions overlap.
    """
    open_names = list[str]()
    for mark in marks:
        about = f"{mark.noun} {mark.display_name}"
        if mark.act not in ("enter", "exit") or mark.type or mark.when or mark.strategy:
            raise UnsupportedError(f"{about} has a value, a predicate or a strategy, or is no region")
        if mark.act == "exit":
            if not open_names or open_names.pop() != mark.name:
                raise UnsupportedError(f"{about} ends where another one is open")
        elif mark.name in open_names:
            raise UnsupportedError(f"{about} is inside of itself")
        else:
            open_names.append(mark.name)


def apart(marks: tuple[Mark, ...]) -> tuple[int, ...]:
    """A number for each mark: every region has a record of its own."""
    names = tuple(dict.fromkeys(mark.name for mark in marks))
    return tuple(names.index(mark.name) for mark in marks)


def shared(marks: tuple[Mark, ...]) -> tuple[int, ...]:
    """A number for each mark: regions that are not open together share records, one more than are open at once.

    With one more, a region that begins where another one ends need not wait for that one's store.
    """
    depth = deepest = 0
    for mark in marks:
        depth += 1 if mark.act == "enter" else -1
        deepest = max(deepest, depth)
    free, taken, found = list(range(deepest + 1)), list[int](), list[int]()
    for mark in marks:
        if mark.act == "enter":
            taken.append(free.pop(0))
            found.append(taken[-1])
        else:
            found.append(taken.pop())
            free.append(found[-1])
    return tuple(found)


def allocated(function: Function, marks: tuple[Mark, ...], numbers: tuple[int, ...], sized: bool) -> Allocation:
    """Choose registers.

    Args:
        function: the kernel.
        marks: its marks.
        numbers: which record each mark has, see apart() and shared().
        sized: each warp reads the size of its slab.

    Raises:
        UnsupportedError: there are not enough, or the kernel uses what belongs to the whole warp.
    """
    used = frozenset[str]().union(*(one.reads | one.writes for one in function.instructions))
    busy = {int(one[1:]) for one in used if one[0] == "R"} | {0, 1}
    free = [number for number in range(_NUMBERS) if number not in busy]
    if {f"UR{DESCRIPTOR}", f"UR{DESCRIPTOR + 1}"} & used:
        raise UnsupportedError(f"{function.name} uses UR{DESCRIPTOR}")

    def take(many: int) -> int:
        for first in free:
            row = range(first, first + many)
            if first % many == 0 and all(number in free for number in row):
                for number in row:
                    free.remove(number)
                return first
        raise UnsupportedError(f"{function.name} leaves no {many} registers in a row")

    records = [take(RECORD) for _ in range(max(numbers, default=-1) + 1)]
    address, base, offset, clocks = take(2), take(1), take(1), take(1)
    last = take(1) if sized else None
    predicates = [number for number in range(_PREDICATES) if f"P{number}" not in used]
    state = State(base, address, offset, clocks, last, predicates[-1] if predicates else None, _scoreboard(function))
    names = [{mark.name for mark, own in zip(marks, numbers, strict=True) if own == n} for n in range(len(records))]
    own = {first: min(found) for first, found in zip(records, names, strict=True) if len(found) == 1}
    highest = max([address + 1, base, offset, clocks, last or 0, *(first + RECORD - 1 for first in records), *busy])
    return Allocation(state, tuple(records[number] for number in numbers), own, highest + 1 + EXTRA)


def _scoreboard(function: Function) -> int:
    """The scoreboard that the fewest instructions use, of those that no DEPBAR counts in flight."""
    uses = [board for one in function.instructions for board in (one.control.writes, one.control.reads)]
    return min(uncounted(function), key=uses.count)


def uncounted(function: Function) -> list[int]:
    """The scoreboards that no DEPBAR counts in flight.

    Raises:
        UnsupportedError: there is none.
    """
    counted = {
        int(one.operands[0].removeprefix("SB"))
        for one in function.instructions
        if one.name == "DEPBAR" and one.operands[-1] != "0x0"
    }
    free = [board for board in SCOREBOARDS if board not in counted]
    if not free:
        raise UnsupportedError(f"every scoreboard of {function.name} is counted in flight by a DEPBAR")
    return free


def needed_predicates(function: Function) -> dict[int, frozenset[str]]:
    """The predicates that the code reads before it writes them, in front of each instruction.

    Not nvdisasm's table, which does not know that P2R reads predicates.
    """
    needed = {one.at: frozenset[str]() for one in function.instructions}
    changed = True
    while changed:
        changed = False
        for one in reversed(function.instructions):
            follows = () if one.name in BRANCHES and not one.conditional else (one.at + BYTES,)
            ways = (*follows, *(() if one.target is None else (one.target,)))
            after = frozenset[str]().union(*(needed.get(way, frozenset()) for way in ways))
            kept = after if one.conditional else after - one.writes
            found = frozenset(name for name in one.reads | kept if name.startswith(("P", "UP")))
            if found != needed[one.at]:
                needed[one.at], changed = found, True
    return needed
