"""Finds the number of registers of a thread at each instruction: USETMAXREG releases or requests some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from ...util.graph_walks import settled
from ..cubin.instructions import BYTES, Function, Instruction
from .hazards import successors

ALL = 256
_NAME, _GIVES_BACK, _REQUESTS = "USETMAXREG", "USETMAXREG.DEALLOC", "USETMAXREG.TRY_ALLOC"


def limits(function: Function) -> dict[int, int]:
    """Least registers of a thread before each instruction that can be reached."""
    if not any(one.name == _NAME for one in function.instructions):
        return dict.fromkeys((one.at for one in function.instructions), ALL)
    by_address = {one.at: one for one in function.instructions}
    return settled({0: ALL}, partial(_onward, by_address), min)


def fewest_registers(function: Function) -> dict[int, int]:
    """The fewest registers that a thread has had up to each instruction: higher ones may have lost their values."""
    known = limits(function)
    by_address = {one.at: one for one in function.instructions}

    def onward(at: int, state: int) -> Iterator[tuple[int, int]]:
        yield from ((to, min(state, known[to])) for to in successors(by_address[at]) if to in known)

    return settled({0: known[0]}, onward, min)


def released_registers(one: Instruction) -> frozenset[str]:
    """The registers that an instruction releases."""
    if not one.code.startswith(_GIVES_BACK):
        return frozenset()
    return frozenset(f"R{number}" for number in range(_number(one), ALL))


def _onward(by_address: Mapping[int, Instruction], at: int, state: int) -> Iterator[tuple[int, int]]:
    one = by_address[at]
    after = min(state, _number(one)) if one.code.startswith(_GIVES_BACK) else state
    granted = _granted(by_address, one)
    for to in successors(one):
        if to in by_address:
            yield to, granted if granted is not None and to == at + BYTES else after


def _granted(by_address: Mapping[int, Instruction], branch: Instruction) -> int | None:
    """Registers of a thread after a branch that repeats a request for them until it is granted."""
    decides = branch.name == "BRA" and branch.guard[:2] == "@!" and not branch.second_condition
    if not decides or branch.target is None or branch.target > branch.at:
        return None
    inside = [by_address[at] for at in range(branch.target, branch.at, BYTES)]
    requests = [one for one in inside if one.code.startswith(_REQUESTS) and not one.conditional]
    sets = [one for one in inside if branch.guard[2:] in one.writes]
    if len(requests) == len(sets) == 1 and requests[0].operands[0] in sets[0].reads and requests[0].at < sets[0].at:
        return _number(requests[0])
    return None


def _number(one: Instruction) -> int:
    return int(one.operands[-1], 16)
