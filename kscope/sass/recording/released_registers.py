"""Recording in the part of a kernel that runs with few registers. State in registers that were released is moved, and
restored afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import hazards, register_limits
from ..checks.hazards import successors
from ..cubin.insertion import New
from ..cubin.instructions import Function
from . import stall_cycles
from .lane_state import State
from .liveness import live


@dataclass(frozen=True)
class Narrow:
    """The part of a kernel with the fewest registers.

    Warp-specialized kernels release registers in the warps that only copy. State in released registers is moved to
    registers that this part does not use, and restored after it:

            MOV R24, R97                          the lane's state
            USETMAXREG.DEALLOC 40
            ...                                   records are written with R24
        again:
            USETMAXREG.TRY_ALLOC UP0, 256
        @!P0 BRA again
            MOV R97, R24

    Attributes:
        begin: the instruction that releases registers.
        ends: the instructions after it, before which there are as many as before.
        inside: its instructions.
        free: registers without a value there.
        limit: least registers of a thread elsewhere.
    """

    begin: int
    ends: tuple[int, ...]
    inside: frozenset[int]
    free: tuple[int, ...]
    limit: int


def narrowest_part(function: Function) -> Narrow | None:
    """The part with the fewest registers; None if there is none, or if it is entered or left in other ways."""
    limits = register_limits.limits(function)
    by_address = {one.at: one for one in function.instructions}
    fewest = min(limits.values())
    inside = frozenset(at for at, many in limits.items() if many == fewest)
    ways = [(at, to) for at in limits for to in successors(by_address[at]) if to in limits]
    begins = {at for at, to in ways if to in inside and at not in inside}
    ends = {to for at, to in ways if at in inside and to not in inside}
    joined = any(to in ends and at not in inside for at, to in ways)
    if fewest == register_limits.ALL or len(begins) != 1 or joined:
        return None
    (begin,) = begins
    if not register_limits.released_registers(by_address[begin]) or any(by_address[at].name == "EXIT" for at in inside):
        return None
    values, flight, used = live(function.instructions), hazards.in_flight(function), set[str]()
    for at in inside:
        used |= by_address[at].reads | by_address[at].writes | values[at] | flight.get(at, frozenset())
    free = tuple(number for number in range(2, fewest) if f"R{number}" not in used)
    elsewhere = min(many for at, many in limits.items() if at not in inside)
    return Narrow(begin, tuple(sorted(ends)), inside, free, elsewhere)


def moves(state: State, low: State) -> list[New]:
    """Moves of the lane's state from one state's registers to those of another one."""
    pairs = ((low.offset, state.offset), (low.mine, state.mine), (low.extra, state.extra))
    on = "" if state.on is None else f"@P{state.on} "  # elsewhere, the lane's state was not written
    texts = [f"{on}MOV R{into}, R{of}" for into, of in pairs if into is not None and of is not None]
    return stall_cycles.with_least_stalls([state.new(text) for text in texts], state.arch)
