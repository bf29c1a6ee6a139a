"""Where a kernel claims its slab: the entry reads clocks; the claim overlaps the kernel's first loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ... import ptx
from ...errors import UnsupportedError
from ..checks import hazards
from ..checks.hazards import CONTROL_FLOW
from ..cubin import insert
from ..cubin.control import Control
from ..cubin.insertion import New, Word
from ..cubin.instructions import BYTES, Function
from ..encoding.renaming import Names
from . import beginning, claim_registers, fragments, liveness, registers, timing
from .fragments import Fragment
from .state import State

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


def placed(
    function: Function,
    claim: Fragment,
    kernel: ptx.Kernel,
    allocation: registers.Allocation,
    opened: Mapping[int, frozenset[int]],
    stores: int,
    control: int,
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
        control: offset of the control block's address in constant bank 3.
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


def back(claim: Claim, put: dict[int, list[New]], tested: int) -> tuple[New, ...]:
    """The claim's code, which jumps back to the code after the test, which may begin with a mark.

    Args:
        claim: the claim.
        put: code inserted before each instruction; the instruction after the test gets a label.
        tested: number of instructions up to the end of the test.
    """
    here = put.get(claim.at, [])
    if tested < len(here):
        here[tested] = replace(here[tested], label=_BACK)
        return claim.behind
    return tuple(replace(one, to=insert.own(claim.at)) if one.to == _BACK else one for one in claim.behind)


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
    control: int,
    at: int,
    written: frozenset[int],
) -> Claim:
    function, state = known.function, allocation.state
    values = fragments.between(kernel)
    ids = _ids(allocation, written)
    of_ids = {int(name[1:]) for one in ids if one.seen and state.on is None for name in one.seen.writes}
    early, late = claim_registers.free(known, at, written, state.registers | of_ids)
    boards, gate, loaded = claim_registers.boards(function, at)
    descriptor = fragments.descriptor(claim)
    state_names = fragments.STATE if kernel.sized else fragments.STATE[:-1]
    kept = {n: _of(state, name) for n, name in enumerate(state_names)}
    there = claim_registers.left_there(claim, {n: int(one[1:]) for n, one in kept.items() if one[0] == "R"})
    second = claim_registers.blocks(claim, early, late, there, state.registers)
    stays = claim_registers.stays(claim, values, second, frozenset(early))
    used = frozenset(second.values()) - claim_registers.untouched(claim, second)
    others = [one for one in early if one not in used]
    begin = beginning.begun(
        kernel, stays, others, gate, control, _predicate(function, loaded), descriptor, state.descriptor
    )
    where = begin.where
    uniform = claim_registers.uniform(function, claim.used("UR"), at, state.warp_wide)
    predicates, saved = claim_registers.predicates(function, claim, at)
    names = Names(second, uniform, predicates)
    left = [one for one in late if one not in {*where.values(), *second.values()} | state.registers]
    if len(saved) > len(left):
        raise UnsupportedError("the kernel leaves too few registers for the claim")
    keep, give = _kept(state, saved, left)

    def comes(name: str, number: int) -> list[New]:
        return [] if where[name] == number else [state.new(f"MOV R{number}, R{where[name]}")]

    def goes(name: str, number: int) -> list[New]:
        into = _of(state, name)
        return [] if into == f"R{number}" else [state.new(f"{'R2UR' if into[0] == 'U' else 'MOV'} {into}, R{number}")]

    code, behind = fragments.spliced(claim, (values, state_names), names, boards, comes, goes, f"{_LABEL} ")
    after = [
        *(state.new(f"MOV R{one}, RZ") for one in (state.offset, state.extra, *state.zeros) if one is not None),
        *_recording(state),
        *give,  # from registers that may hold ids from here on
        *ids,
        state.new("BRA `()", Control(stall=5), to=_BACK),
    ]
    epoch = where[values[0]]
    test = [
        *_open(state, epoch, gate, registers.needed_predicates(function)[at]),
        *_at_rest(state),
        *(ids if state.on is None else ()),  # the claim returns after these
    ]
    highest = max(*where.values(), *second.values(), *left[: len(saved)])
    first, *rest = [*keep, *code]
    start = [replace(first, label=_LABEL)] if not first.label else [state.new("NOP", label=_LABEL), first]
    cold, rare = (timing.with_least_stalls(one, function.arch) for one in ([*start, *rest, *after], behind))
    begins, loads = begin.clocks, begin.loads
    parts = [timing.with_least_stalls(one, function.arch) for one in (begins, loads, test)]
    if loaded == at:  # with all waits in between
        parts = [parts[0], [], timing.with_least_stalls([*loads, *test], function.arch)]
    if not at:
        parts = [timing.with_least_stalls([*begins, *loads, *test], function.arch), [], []]
    return Claim(tuple(parts[0]), tuple(parts[1]), tuple(parts[2]), tuple(cold), tuple(rare), loaded, at, highest)


def _predicate(function: Function, at: int) -> int:
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


def _open(state: State, epoch: int, gate: int, needed: frozenset[str]) -> list[New]:
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
        state.new(f"@P{free[0]} BRA `()", Control(stall=5), to=_LABEL),
    ]


def _ids(allocation: registers.Allocation, written: frozenset[int]) -> list[New]:
    """The ids and values of records that have separate registers; of others, marks write all words."""
    keys = {quad: key for key, quad in allocation.quads.items()}
    return [
        replace(
            allocation.state.new(f"IMAD.MOV.U32 R{quad + word}, RZ, RZ, {value:#x}"), word_of=Word(keys[quad], "always")
        )
        for quad, own in sorted(allocation.own.items())
        for word, value in ((1, own), (3, 0))
        if quad + word not in written
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
