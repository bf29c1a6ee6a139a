"""Finds inserted code that runs while the lanes of a warp have diverged, for the checkers. Warp-wide registers (uniform
registers, convergence barriers) may be overwritten only where no other lane can run kernel code meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from ...util.graph_walks import settled
from ..cubin.instructions import Instruction
from .hazards import CONTROL_FLOW

_SAME = frozenset(
    {"IADD3", "IMAD", "IMNMX", "ISETP", "LDC", "LDG", "LEA", "LOP3", "MOV", "PLOP3", "PRMT", "SEL", "SHF", "ULDC"}
    | {"UMOV", "VIADD", "VIADDMNMX", "VIMNMX", "VOTE", "VOTEU"}
)
"""Instructions whose results are equal in all lanes if their operands are; others, such as those that read a lane's
number or claim memory, may differ.
"""
_MEMORY = frozenset({"LDG"})
_VOTES = frozenset({"VOTE", "VOTEU"})
_LOOSE = ""
"""Lanes that diverged at a branch after which no barrier of inserted code collects them."""

_Flow = Mapping[int, tuple[int, ...]]
_State = tuple[int, tuple[str, ...], frozenset[str]]
"""An address, the convergence barriers that inserted code has set on the path, and those at which diverged lanes meet.
"""


def undiverged_addresses(flow: _Flow, by_address: Mapping[int, Instruction], new: Set[int]) -> frozenset[int]:
    """Addresses that run while no lane can run kernel code elsewhere: no kernel instruction has split the warp, and
    lanes that an inserted one splits meet before kernel code.

    Args:
        flow: the possible next addresses, by address.
        by_address: all instructions.
        new: addresses of the inserted ones.
    """
    same = _same(flow, by_address, new)
    parted, astray = {at: set[str]() for at in flow}, {_LOOSE}
    seen, work = set[_State](), [(0, tuple[str, ...](), frozenset[str]())]
    while work:
        at, barriers, apart = place = work.pop()
        if place in seen:
            continue
        seen.add(place)
        one = by_address[at]
        parted[at] |= apart
        if at not in new:
            astray |= apart  # in kernel code before they meet
            if one.name in CONTROL_FLOW and not (one.code == "BRA" and _together(one, same[at])):
                apart |= {_LOOSE}
        elif one.name == "BSSY":
            barriers = (*_without(barriers, one.operands[0]), one.operands[0])
        elif one.name == "BSYNC":
            barriers = _without(barriers, one.operands[0])
            apart -= {one.operands[0]}
        elif one.name in CONTROL_FLOW and not _conditions(one) <= same[at]:
            apart |= {barriers[-1] if barriers else _LOOSE}
        work += ((to, barriers, apart) for to in flow[at])
    return frozenset(at for at, found in parted.items() if not found & astray)


def _together(branch: Instruction, same: frozenset[str]) -> bool:
    """True if all lanes take one way."""
    return all(name in same or name.startswith("UP") for name in _conditions(branch))


def _conditions(one: Instruction) -> frozenset[str]:
    """The predicates on which a branch depends."""
    guard = {one.guard.lstrip("@!")} if one.conditional else set[str]()
    return frozenset(guard | ({one.second_condition.lstrip("!")} if one.second_condition else set()))


def _without(barriers: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(one for one in barriers if one != name)


def _same(flow: _Flow, by_address: Mapping[int, Instruction], new: Set[int]) -> dict[int, frozenset[str]]:
    """The registers that have the same value in every lane, before each instruction: those that inserted code wrote, or
    kernel code from constants and uniform registers.
    """

    def onward(at: int, before: frozenset[str]) -> Iterator[tuple[int, frozenset[str]]]:
        after = _after(by_address[at], before, at in new)
        yield from ((to, after) for to in flow[at])

    return settled({0: frozenset[str]()}, onward, frozenset.intersection)


def _after(one: Instruction, before: frozenset[str], new: bool) -> frozenset[str]:
    zero = one.code.startswith("CS2R") and one.operands[-1] == "SRZ"
    reads = one.reads - (frozenset() if one.name not in _VOTES else one.reads - {one.guard.lstrip("@!")})
    if not new:
        reads = frozenset(name for name in reads if not name.startswith(("UR", "UP")))
    if (zero or (one.name in _SAME and (new or one.name not in _MEMORY))) and reads <= before:
        return before | (one.writes & before if one.conditional else one.writes)
    return before - one.writes
