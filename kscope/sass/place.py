"""Where a mark stands in machine code: in front of the first landmark behind it, in the block that has its neighbors.

A landmark is an instruction that ptxas keeps in the order of the marks: memory, barriers and waits. What only computes
is moved across marks by the schedule, which is the truth of the kernel that is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import UnsupportedError
from .hazards import successors
from .instructions import Function, Instruction
from .labels import Labeled, Place

LANDMARKS = frozenset(
    {
        "ATOM", "ATOMG", "ATOMS", "BAR", "CCTL", "DEPBAR", "ERRBAR", "FENCE", "LD", "LDG", "LDGDEPBAR", "LDGSTS", "LDS",
        "LDSM", "MEMBAR", "RED", "REDG", "ST", "STG", "STS", "STSM", "SYNCS", "UTMALDG", "UTMASTG", "WARPGROUP",
    }
)  # fmt: skip
"""Opcodes of landmarks."""
_WAITS = frozenset({"BAR", "SYNCS", "DEPBAR", "WARPGROUP"})
"""A clock read right behind these is issued before they are through."""
STOPS = 8
"""Cycles after which a barrier has stopped the warp; on an H200 it takes six."""


@dataclass(frozen=True)
class Spot:
    """Where a mark's instructions are inserted.

    Attributes:
        at: the instruction that they stand in front of.
        outside: instructions of the other side of the mark that the schedule put on this one.
        behind_wait: a barrier or a wait is so close in front that it may not have stopped the warp yet.
    """

    at: int
    outside: int
    behind_wait: bool


def spots(function: Function, labels: Labeled, places: Mapping[int, Place]) -> tuple[Spot, ...]:
    """The place of each mark of a kernel, in the order of the marks.

    Args:
        function: the code.
        labels: what its text was labeled with.
        places: where its instructions come from, see labels.places().

    Raises:
        UnsupportedError: a mark has no place of which it is certain that it is run as often as the mark.
    """
    blocks, least = _blocks(function), dict[int, int]()
    found = list[Spot]()
    for number in range(len(labels.marks)):
        block = blocks[_holding(number, blocks, labels, places)]
        spot = _spot(number, block, labels, places, least.get(block[0].at, 0))
        least[block[0].at] = spot.at
        found.append(spot)
    return tuple(found)


def _holding(number: int, blocks: list[list[Instruction]], labels: Labeled, places: Mapping[int, Place]) -> int:
    """Which block a mark is in: the only one with landmarks of its block in the text, else with any instruction."""
    mark, own = labels.marks[number], labels.blocks[number]

    def holding(landmarks: bool) -> list[int]:
        return [
            index
            for index, block in enumerate(blocks)
            if any(
                one.at in places and places[one.at].block == own and (not landmarks or one.name in LANDMARKS)
                for one in block
            )
        ]

    anything = holding(False)
    found = holding(True) or anything
    about = f"{mark.noun} {mark.display_name}: the code around its {mark.act} is"
    if len(found) != 1:
        raise UnsupportedError(f"{about} in {len(found) or 'no'} blocks of the machine code")
    if _depth(blocks, found[0]) < max(_depth(blocks, index) for index in anything):
        raise UnsupportedError(f"{about} outside of its loop")
    return found[0]


def _depth(blocks: list[list[Instruction]], index: int) -> int:
    """Loops around a block: branches backward over it, counted by where they lead."""
    at = blocks[index][0].at
    backward = (one for block in blocks for one in block if one.target is not None and one.target < one.at)
    return len({one.target for one in backward if one.target is not None and one.target <= at <= one.at})


def _spot(number: int, block: list[Instruction], labels: Labeled, places: Mapping[int, Place], least: int) -> Spot:
    """Of the slots between the landmarks on both sides, from `least` on, the one that cuts off fewest instructions."""
    mark = labels.marks[number]
    behind = [one.at in places and places[one.at].segment > number for one in block]
    known = [one.at in places for one in block]
    marked = [n for n, one in enumerate(block) if known[n] and one.name in LANDMARKS]
    first = max((n + 1 for n in marked if not behind[n]), default=0)
    last = min((n for n in marked if behind[n]), default=_last(block))
    first = max(first, next((n for n, one in enumerate(block) if one.at >= least), len(block)))
    if first > last:
        raise UnsupportedError(
            f"{mark.noun} {mark.display_name}: the machine code has memory accesses out of its order"
        )

    def outside(slot: int) -> int:
        return sum(behind[:slot]) + sum(known[n] and not behind[n] for n in range(slot, len(block)))

    chosen = min(range(first, last + 1), key=lambda slot: (outside(slot), -slot if mark.act == "enter" else slot))
    return Spot(block[chosen].at, outside(chosen), _is_behind_wait(block[:chosen]))


def _is_behind_wait(ahead: list[Instruction]) -> bool:
    """Whether a wait was issued less than STOPS cycles before."""
    cycles = 0
    for one in reversed(ahead):
        cycles += max(1, one.control.stall)
        if cycles >= STOPS:
            return False
        if one.name in _WAITS:
            return True
    return False


def _last(block: list[Instruction]) -> int:
    """The last slot of a block: in front of its last instruction, which may leave it."""
    return len(block) - 1


def _blocks(function: Function) -> list[list[Instruction]]:
    """The basic blocks, in order of address."""
    starts = {0, *function.targets}
    for one in function.instructions:
        if successors(one) != (one.at + 16,):
            starts.add(one.at + 16)
    found = list[list[Instruction]]()
    for one in function.instructions:
        if one.at in starts or not found:
            found.append([])
        found[-1].append(one)
    return found
