"""Which registers hold a region's record and what a lane knows: those that neither kernel nor fragment uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import UnsupportedError
from .control import SCOREBOARDS
from .fragments import DESCRIPTOR, State
from .instructions import BRANCHES, BYTES, Function
from .regions import Key, Record

RECORD = 4
"""Registers of a record, the first of which has a number that this divides."""
_NUMBERS, _PREDICATES = 255, 7
_RECENT = 13
"""Instructions after which every predicate is there."""
_EXTRA = 2
"""A kernel's count of registers is its highest number, plus one, plus these."""


@dataclass(frozen=True)
class Allocation:
    """Registers of a kernel that records.

    Attributes:
        state: what a lane knows.
        quads: the first register of each record.
        own: quads that belong to one record alone, with its id.
        count: registers a thread that the kernel needs.
    """

    state: State
    quads: dict[Key, int]
    own: dict[int, int]
    count: int


def allocated(
    function: Function, records: Sequence[Record], numbers: Mapping[Key, int], taken: frozenset[int], sized: bool
) -> Allocation:
    """Choose registers.

    Args:
        function: the kernel.
        records: what its marks write.
        numbers: which registers each record has, see regions.apart() and regions.shared().
        taken: registers of the fragments.
        sized: each warp reads the size of its slab.

    Raises:
        UnsupportedError: there are not enough, or the kernel uses what belongs to the whole warp.
    """
    used = frozenset[str]().union(*(one.reads | one.writes for one in function.instructions))
    busy = {int(one[1:]) for one in used if one[0] == "R"} | taken | {0, 1}
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

    quads = [take(RECORD) for _ in range(max(numbers.values(), default=-1) + 1)]
    address, base, offset, clocks = take(2), take(1), take(1), take(1)
    last = take(1) if sized else None
    predicates = [number for number in range(_PREDICATES) if f"P{number}" not in used]
    on, spare = (predicates[-1], None) if predicates else (None, take(1))
    state = State(base, address, offset, clocks, last, on, _scoreboard(function), spare)
    ids = [{record.id for record in records if numbers[record.key] == number} for number in range(len(quads))]
    own = {first: min(found) for first, found in zip(quads, ids, strict=True) if len(found) == 1}
    highest = max([address + 1, base, offset, clocks, last or 0, spare or 0, *(first + RECORD - 1 for first in quads), *busy])
    return Allocation(state, {key: quads[number] for key, number in numbers.items()}, own, highest + 1 + _EXTRA)


def _scoreboard(function: Function) -> int:
    """The scoreboard that the fewest instructions use, of those that no DEPBAR counts in flight."""
    counted = {
        int(one.operands[0].removeprefix("SB"))
        for one in function.instructions
        if one.name == "DEPBAR" and one.operands[-1] != "0x0"
    }
    uses = [board for one in function.instructions for board in (one.control.writes, one.control.reads)]
    free = [board for board in SCOREBOARDS if board not in counted]
    if not free:
        raise UnsupportedError(f"every scoreboard of {function.name} is counted in flight by a DEPBAR")
    return min(free, key=uses.count)


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
            found = frozenset(name for name in one.reads | kept if name[0] == "P")
            if found != needed[one.at]:
                needed[one.at], changed = found, True
    return needed


def calm_predicates(function: Function, at: int) -> frozenset[str]:
    """The predicates that no instruction of the last ones in front of an address writes."""
    number = at // BYTES
    recent = function.instructions[max(0, number - _RECENT) : number]
    found = {f"P{one}" for one in range(_PREDICATES)}
    return frozenset(found - {name for one in recent for name in one.writes})
