"""Claims of a kernel whose warps part at its entry: one on each way.

    begin, loads of the gate
@P0 BRA multiply
    test, claim                         these warps wait for the others
    ...
multiply:
    initialize the barriers             their clocks
    wait for the other warps
    test, claim                         the first copies are on their way
    store the records of the barriers
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ... import ptx
from ...errors import UnsupportedError
from ...util.graph_walks import reached
from ..checks import hazards
from ..placing.basic_blocks import LOADS, Machine
from . import beginning, claim_registers, claiming, fragments, liveness, registers, stall_cycles, store_places
from .claiming import Claim
from .fragments import Fragment
from .sites import Site


def place_claims(
    machine: Machine,
    claim: Fragment,
    kernel: ptx.Kernel,
    allocation: registers.Allocation,
    sites: Sequence[Site],
    stores: Collection[int],
    control: int | None,
    room: Mapping[int, int],
    most: int,
) -> tuple[Claim, ...]:
    """Place a claim on each way after the entry.

    A warp waits for the answer of its claim, and all warps of a block wait for those that initialize its barriers. So
    the claim comes after the first work of each way.

    Args:
        machine: the kernel.
        claim: the claim.
        kernel: the values on which their texts depend.
        allocation: registers of records and state.
        sites: copies of marks.
        stores: the instructions before which deferred records are stored.
        control: offset of the control block's address in constant bank 3; None for moves of it.
        room: least number of registers that a thread has had up to an instruction.
        most: number of registers that a thread may use.

    Raises:
        UnsupportedError: the kernel has no such ways, or leaves too little there.
    """
    function, blocks, state = machine.function, machine.blocks, allocation.state
    entry, ways = blocks[0], sorted(set(machine.flow.successors[0]))
    if len(ways) == 1 or any(one.name in LOADS for one in entry):
        raise UnsupportedError(f"the warps of {function.name} do not part at its entry")
    found = [_place(machine, way, sites, stores) for way in ways]
    if not any(at in stores for at, _ in found):
        raise UnsupportedError(f"{function.name} has nothing to do in front of a claim")
    known = claim_registers.Known(function, liveness.live(function.instructions), hazards.in_flight(function))
    ahead = [
        one for one in function.instructions if one.at in {one.at for one in entry}.union(*(some for _, some in found))
    ]
    counted = {board for one in ahead for board in (one.control.writes, one.control.reads, *one.control.waits)}
    gates = [board for board in registers.uncounted(function) if board not in {*counted, state.scoreboard}]
    if not gates:
        raise UnsupportedError(f"{function.name} leaves no scoreboard to its claims")
    loaded = next((one.at for one in entry if one.control.waits), entry[-1].at)
    quads = {first + n for first in allocation.quads.values() for n in range(registers.RECORD)}
    busy = {int(name[1:]) for one in function.instructions for name in one.reads | one.writes if name[0] == "R"}
    taken = {0, 1, *busy, *quads, *state.registers, *(one.aside for one in sites if one.aside is not None)}
    limit = min(most - registers.EXTRA, *(room[at] for at, _ in found))
    free = [number for number in range(limit) if number not in taken]
    predicate = claiming.free_predicate(function, loaded)
    descriptor = fragments.descriptor(claim)
    begin = beginning.begun(kernel, {}, free, gates[0], control, predicate, descriptor, state.descriptor)
    parts, made = (
        [stall_cycles.with_least_stalls(some, function.arch) for some in (begin.clocks, begin.loads)],
        list[Claim](),
    )
    for number, (way, (at, some)) in enumerate(zip(ways, found, strict=True)):
        written = _written(sites, {*some, *(one.at for one in entry)})
        _, every = claim_registers.free_registers(known, at, written, frozenset())
        late = [one for one in every if one < limit and one not in begin.where.values()]
        chosen = claim_registers.blocks(
            claim, [], late, claiming.registers_of_values(claim, kernel, state), state.registers
        )
        boards, *_ = claim_registers.boards(function, at)
        behind = reached([way], lambda block: machine.flow.successors[block])
        keys = frozenset(one.record.key for one in sites if store_places.block_of(machine, one) in behind)
        place = claiming.Place(known, at, written, late, chosen, boards, gates[0], f" {number}", keys)
        test, cold, rare, highest = claiming.claimed(place, claim, kernel, allocation, begin.where)
        tested = tuple(stall_cycles.with_least_stalls(test, function.arch))
        begins, loads = ((), ()) if number else map(tuple, parts)
        made.append(Claim(begins, loads, tested, tuple(cold), tuple(rare), loaded, at, highest))
    return tuple(made)


def _place(machine: Machine, way: int, sites: Sequence[Site], stores: Collection[int]) -> tuple[int, frozenset[int]]:
    """The place of a way's claim, and the addresses of the code before it: where records are stored together, if
    nothing is stored before; else the beginning of the way.
    """
    ahead, chain = machine.flow.predecessors[way], store_places.chain(machine, way)
    code = [one.at for block in chain for one in machine.blocks[block]]
    here = [one for one in sites if one.spot.next in code and one.act not in ("enter", "clock")]
    late = code[-1] in stores and all(one.later and one.flag is None for one in here)
    last = chain[-1] if late else way
    if way == 0 or {*ahead} - {way} != {0} or last in machine.flow.predecessors[last]:
        raise UnsupportedError(f"{machine.function.name} comes to a way behind its entry from elsewhere")
    return (code[-1], frozenset(code[:-1])) if late else (code[0], frozenset())


def _written(sites: Sequence[Site], code: Collection[int]) -> frozenset[int]:
    """The registers that marks write in some code."""

    def numbers() -> Iterator[int]:
        for one in sites:
            if one.spot.at in code:
                yield from one.early

    return frozenset(numbers())
