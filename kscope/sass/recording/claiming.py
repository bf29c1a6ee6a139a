"""Where a kernel claims its slab: the entry reads clocks; the claim overlaps the kernel's first loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ... import ptx
from ...errors import UnsupportedError
from ..checks import hazards
from ..checks.hazards import CONTROL_FLOW
from ..cubin import insert
from ..cubin.control_codes import Control
from ..cubin.insertion import New, Word
from ..cubin.instructions import BYTES, Function
from ..encoding.renaming import Names
from . import beginning, claim_registers, fragments, liveness, registers, stall_cycles
from .fragments import Fragment
from .lane_state import State
from .regions import Key

_LOADS = frozenset({"LDG", "LDGSTS", "LD", "UTMALDG", "UBLKCP"})
_STOPS = frozenset({"SYNCS", "DEPBAR", "WARPGROUP", "BSSY", "WARPSYNC", "USETMAXREG"})
_STEP = 8 * BYTES
"""Distance between the places that are tried, from the last one to the entry."""
_LABEL, _BACK = "claim", "back"


@dataclass(frozen=True)
class Claim:
    """The claim of a kernel.

    Attributes:
        begin: code at the entry.
        load: code at `loaded`.
        test: code at `at`.
        behind: code after the kernel: the claim.
        aside: the parts of the claim that rarely run.
        loaded: the instruction before which the gate is loaded.
        at: the instruction before which the gate is tested.
        highest: the highest register number in begin and claim.
    """

    begin: tuple[New, ...]
    load: tuple[New, ...]
    test: tuple[New, ...]
    behind: tuple[New, ...]
    aside: tuple[New, ...]
    loaded: int
    at: int
    highest: int


def place_claim(
    function: Function,
    claim: Fragment,
    kernel: ptx.Kernel,
    allocation: registers.Allocation,
    opened: Mapping[int, frozenset[int]],
    stores: int,
    control: int | None,
    most: int,
) -> Claim:
    """Place the claim of a kernel.

        begin   at the entry: clocks, the control block's address
        load    at the kernel's first wait: loads of the gate
        test    before the first wait for memory: is the gate open?
        claim   after the kernel's code, and back: lanes, atomic, head

    Until the test, the values of the begin are in registers that the kernel does not use yet. A kernel without such a
    place, or without the registers, claims at its entry. If the gate is shut, the claim does not run.

    Args:
        function: its code.
        claim: the claim.
        kernel: the options of the protocol's code.
        allocation: registers of records and state.
        opened: registers that a region's begin or a mark's value writes, by address.
        stores: the first address at which a record is stored.
        control: offset of the control block's address in constant bank 3; None for moves of it.
        most: registers a thread that it may use.

    Raises:
        UnsupportedError: it cannot be placed at the entry either.
    """
    known = claim_registers.Known(function, liveness.live(function.instructions), hazards.in_flight(function))
    for at in (*range(_late(function, stores), 0, -_STEP), 0):
        written = frozenset[int]().union(*(some for first, some in opened.items() if first < at))
        try:
            found = _at(known, claim, kernel, allocation, control, at, written)
        except UnsupportedError:
            if not at:
                raise
            continue
        if not at or found.highest < most - registers.EXTRA:
            return found
    raise AssertionError("the entry is always tried")


def with_return(claim: Claim, put: dict[int, list[New]], tested: int) -> tuple[New, ...]:
    """The claim's code, which jumps back to the code after the test, which may begin with a mark.

    Args:
        claim: the claim.
        put: code inserted before each instruction; the instruction after the test gets a label.
        tested: number of instructions up to the end of the test.
    """
    here, name = put.get(claim.at, []), next(str(one.to) for one in claim.behind if str(one.to).startswith(_BACK))
    if tested < len(here):
        here[tested] = replace(here[tested], label=name)
        return claim.behind
    return tuple(replace(one, to=insert.label_of(claim.at)) if one.to == name else one for one in claim.behind)


def _late(function: Function, stores: int) -> int:
    """The latest place of the claim: before the first wait for memory in the entry's block if a load precedes it, else
    at the block's end; never after the first mark that stores, and never at a branch target, which may be in a loop.
    """
    loading = set[int]()
    loaded = False
    for one in function.instructions:
        if one.at and one.at in function.targets:
            return one.at - BYTES
        ends = one.name in CONTROL_FLOW or one.name in _STOPS
        if one.at >= stores or ends or one.control.waits & loading:
            return one.at if loaded or ends else 0
        if one.name in _LOADS:
            loaded = True
            loading |= {board for board in (one.control.writes,) if board is not None}
    return 0


def _at(
    known: claim_registers.Known,
    claim: Fragment,
    kernel: ptx.Kernel,
    allocation: registers.Allocation,
    control: int | None,
    at: int,
    written: frozenset[int],
) -> Claim:
    function, state = known.function, allocation.state
    early, late = claim_registers.free_registers(known, at, written, state.registers | _of_ids(allocation, written))
    boards, gate, loaded = claim_registers.boards(function, at)
    second = claim_registers.blocks(claim, early, late, registers_of_values(claim, kernel, state), state.registers)
    stays = claim_registers.lasting_values(claim, fragments.passed_values(kernel), second, frozenset(early))
    used = frozenset(second.values()) - claim_registers.unwritten_registers(claim, second)
    others = [one for one in early if one not in used]
    predicate, descriptor = free_predicate(function, loaded), fragments.descriptor(claim)
    begin = beginning.begun(kernel, stays, others, gate, control, predicate, descriptor, state.descriptor)
    place = Place(known, at, written, late, second, boards, gate)
    test, cold, rare, highest = claimed(place, claim, kernel, allocation, begin.where)
    begins, loads = begin.clocks, begin.loads
    parts = [stall_cycles.with_least_stalls(one, function.arch) for one in (begins, loads, test)]
    if loaded == at:  # with all waits in between
        parts = [parts[0], [], stall_cycles.with_least_stalls([*loads, *test], function.arch)]
    if not at:
        parts = [stall_cycles.with_least_stalls([*begins, *loads, *test], function.arch), [], []]
    return Claim(tuple(parts[0]), tuple(parts[1]), tuple(parts[2]), tuple(cold), tuple(rare), loaded, at, highest)


@dataclass(frozen=True)
class Place:
    """Where a kernel claims.

    Attributes:
        known: the kernel.
        at: the instruction before which the gate is tested.
        written: registers that hold a part of a record there.
        late: registers that are free there.
        chosen: the registers of the claim.
        boards: the scoreboards of the claim.
        gate: the scoreboard of the gate's loads.
        name: suffix of its labels.
        records: those that may be written after it; None for all.
    """

    known: claim_registers.Known
    at: int
    written: frozenset[int]
    late: list[int]
    chosen: Mapping[int, int]
    boards: Mapping[int, int]
    gate: int
    name: str = ""
    records: frozenset[Key] | None = None


def claimed(
    place: Place, claim: Fragment, kernel: ptx.Kernel, allocation: registers.Allocation, where: Mapping[str, int]
) -> tuple[list[New], list[New], list[New], int]:
    """The test, the claim, its parts that rarely run, and the highest register that it uses.

    where: registers of the begin's values.
    """
    state, function, values = allocation.state, place.known.function, fragments.passed_values(kernel)
    label, back = f"{_LABEL}{place.name}", f"{_BACK}{place.name}"
    uniform = claim_registers.uniform(place.known, claim.used("UR"), place.at, state.warp_wide)
    predicates, saved = claim_registers.predicates(function, claim, place.at)
    warp_wide = claim_registers.warp_predicates(function, claim, place.at)
    names = Names(place.chosen, uniform, predicates, warp_wide)
    left = [one for one in place.late if one not in {*where.values(), *place.chosen.values()} | state.registers]
    if len(saved) > len(left):
        raise UnsupportedError("the kernel leaves too few registers for the claim")
    keep, give = _kept(state, saved, left)
    ids = _ids(allocation, place.written, place.records)

    def comes(name: str, number: int) -> list[New]:
        return [] if where[name] == number else [state.new(f"MOV R{number}, R{where[name]}")]

    def goes(name: str, number: int) -> list[New]:
        into = _of(state, name)
        return [] if into == f"R{number}" else [state.new(f"{'R2UR' if into[0] == 'U' else 'MOV'} {into}, R{number}")]

    code, behind = fragments.spliced(claim, (values, _names(kernel)), names, place.boards, comes, goes, f"{label} ")
    after = [
        *(state.new(f"MOV R{one}, RZ") for one in (state.offset, state.extra, *state.zeros) if one is not None),
        *_recording(state),
        *give,  # from registers that may hold ids from here on
        *ids,
        state.new("BRA `()", Control(stall=5), to=back),
    ]
    test = [
        *_open(state, where[values[0]], place.gate, registers.needed_predicates(function)[place.at], label),
        *_at_rest(state),
        *(ids if state.on is None else ()),  # the claim returns after these
    ]
    highest = max(*where.values(), *place.chosen.values(), *left[: len(saved)])
    first, *rest = [*keep, *code]
    start = [replace(first, label=label)] if not first.label else [state.new("NOP", label=label), first]
    cold, rare = (stall_cycles.with_least_stalls(one, function.arch) for one in ([*start, *rest, *after], behind))
    return test, cold, rare, highest


def _names(kernel: ptx.Kernel) -> tuple[str, ...]:
    """Values that a claim leaves to the lane."""
    return fragments.STATE if kernel.sized else fragments.STATE[:-1]


def registers_of_values(claim: Fragment, kernel: ptx.Kernel, state: State) -> dict[int, int]:
    """Registers of the claim in which such a value may remain."""
    kept = {n: _of(state, name) for n, name in enumerate(_names(kernel))}
    return claim_registers.left_there(claim, {n: int(one[1:]) for n, one in kept.items() if one[0] == "R"})


def _of_ids(allocation: registers.Allocation, written: frozenset[int]) -> set[int]:
    """Registers that hold ids also where no lane records."""
    ids = _ids(allocation, written) if allocation.state.on is None else []
    return {int(name[1:]) for one in ids if one.seen for name in one.seen.writes}


def free_predicate(function: Function, at: int) -> int:
    """A predicate that is free before an instruction."""
    needed = registers.needed_predicates(function)[at]
    for number in range(claim_registers.PREDICATES):
        if f"P{number}" not in needed:
            return number
    raise UnsupportedError("the kernel needs every predicate where it would load the gate")


def _at_rest(state: State) -> list[New]:
    """Code that sets the lane's state while the gate is shut; with a predicate for it, only what is read anyway."""
    if state.on is not None:
        return [state.new(f"MOV R{number}, RZ") for number in state.zeros]
    return [
        *(state.new(f"MOV R{number}, RZ") for number in sorted(state.registers)),
        *(state.new(f"UMOV UR{number}, URZ") for number in sorted(state.uniform)),
    ]


def _open(state: State, epoch: int, gate: int, needed: frozenset[str], label: str) -> list[New]:
    """A branch to the claim if the gate is open."""
    free = (
        [one for one in range(claim_registers.PREDICATES) if f"P{one}" not in needed]
        if state.on is None
        else [state.on]
    )
    if not free:
        raise UnsupportedError("the kernel needs every predicate where it would claim")
    waits = Control(waits=frozenset({gate}))
    return [
        state.new(f"ISETP.NE.U32.AND P{free[0]}, PT, R{epoch}, RZ, PT", waits),
        state.new(f"@P{free[0]} BRA `()", Control(stall=5), to=label),
    ]


def _ids(allocation: registers.Allocation, written: frozenset[int], records: frozenset[Key] | None = None) -> list[New]:
    """The ids and values of records that have separate registers; of others, marks write all words."""
    keys = {quad: key for key, quad in allocation.quads.items()}
    needed = {quad for key, quad in allocation.quads.items() if records is None or key in records}
    return [
        replace(
            allocation.state.new(f"IMAD.MOV.U32 R{quad + word}, RZ, RZ, {value:#x}"), word_of=Word(keys[quad], "always")
        )
        for quad, own in sorted(allocation.own.items())
        for word, value in ((1, own), (3, 0))
        if quad + word not in written and quad in needed
    ]


def _kept(state: State, predicates: tuple[int, ...], free: list[int]) -> tuple[list[New], list[New]]:
    """Instructions that save predicates in registers, and those that restore them."""
    pairs = list(zip(predicates, free, strict=False))
    keep = [state.new(f"P2R R{into}, PR, RZ, {1 << one:#x}") for one, into in pairs]
    give = [state.new(f"ISETP.NE.U32.AND P{one}, PT, R{of}, RZ, PT") for one, of in pairs]
    return keep, give


def _of(state: State, name: str) -> str:
    """The register of a value of the state."""
    high = f"R{state.address + (not state.uniform)}"
    number = {"base lo": state.base, "base hi": high, "clocks": state.clocks, "last": state.last}[name]
    assert number is not None
    return number


def _recording(state: State) -> list[New]:
    """A lane without a slab has the high word 0."""
    high = f"R{state.address + (not state.uniform)}"
    found = [] if state.on is None else [state.new(f"ISETP.NE.U32.AND P{state.on}, PT, {high}, RZ, PT")]
    if state.uniform:
        found.append(state.new(f"R2UR UR{int(state.base[2:]) + 1}, {high}"))
    return found if state.mine is None else [*found, state.new(f"MOV R{state.mine}, {high}")]
