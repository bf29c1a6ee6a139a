"""Where a kernel claims its slab: the gate is asked for at the entry, the rest stands where the kernel's own loads are
on their way.

    begin   at the entry: clocks, the control block's address
    ask     where the kernel first waits for anything: loads of the gate
    test    in front of the first wait for memory: is the gate open?
    claim   behind the kernel's own code, and back: lanes, atomic, head

Until the test, what the begin loads is in registers that the kernel does not use yet. A kernel without such a place,
or without the registers, claims at its entry. If the gate is shut, the claim does not run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from .. import ptx
from ..errors import UnsupportedError
from . import fragments, hazards, insert, lending, registers, timing, writing
from .control import SCOREBOARDS, Control
from .fragments import Fragment
from .hazards import CONTROL_FLOW
from .insert import New
from .instructions import BYTES, Function
from .record_words import Word
from .registers import DESCRIPTOR, State
from .renaming import Names

_LOADS = frozenset({"LDG", "LDGSTS", "LD", "UTMALDG", "UBLKCP"})
_STOPS = frozenset({"SYNCS", "DEPBAR", "WARPGROUP", "BSSY", "WARPSYNC", "USETMAXREG"})
_STEP = 8 * BYTES
"""Between the places that are tried, from the last one to the entry."""
_HIGHEST, _UNIFORM, _PREDICATES = 254, 60, 7
_RESERVED = frozenset({0, 1})
_LABEL = "claim"


@dataclass(frozen=True)
class Claim:
    """The claim of a kernel.

    Attributes:
        begin: what stands at the entry.
        ask: what stands at `asked`.
        test: what stands at `at`.
        behind: what stands behind the kernel: the claim.
        asked: the instruction that the loads of the gate stand in front of.
        at: the instruction that the test stands in front of.
        highest: the highest number of a register that begin and claim use.
    """

    begin: tuple[New, ...]
    ask: tuple[New, ...]
    test: tuple[New, ...]
    behind: tuple[New, ...]
    asked: int
    at: int
    highest: int


def placed(
    function: Function,
    pieces: tuple[Fragment, Fragment],
    kernel: ptx.Kernel,
    allocation: registers.Allocation,
    opened: Mapping[int, frozenset[int]],
    stores: int,
    control: int,
    most: int,
) -> Claim:
    """Place the claim of a kernel.

    Args:
        function: its code.
        pieces: begin and claim.
        kernel: what their texts depend on.
        allocation: registers of records and state.
        opened: by the address of a region's begin, or of a mark's value: the registers that it writes.
        stores: the first address at which a record is stored.
        control: offset of the control block's address in constant bank 3.
        most: registers a thread that it may use.

    Raises:
        UnsupportedError: it cannot be placed at the entry either.
    """
    known = _Known(function, lending.live(function), hazards.in_flight(function))
    for at in (*range(_late(function, stores), 0, -_STEP), 0):
        written = frozenset[int]().union(*(some for first, some in opened.items() if first < at))
        try:
            found = _at(known, pieces, kernel, allocation, control, at, written)
        except UnsupportedError:
            if not at:
                raise
            continue
        if not at or found.highest < most - registers.EXTRA:
            return found
    raise AssertionError("the entry is always tried")


def _late(function: Function, stores: int) -> int:
    """In front of the first wait for memory in the entry's block, if it loads before; else at the block's end; never
    behind the first mark that stores.
    """
    loading = set[int]()
    loaded = False
    for one in function.instructions:
        ends = one.name in CONTROL_FLOW or one.name in _STOPS or (one.at and one.at in function.targets)
        if one.at >= stores or ends or one.control.waits & loading:
            return one.at if loaded or ends else 0
        if one.name in _LOADS:
            loaded = True
            loading |= {board for board in (one.control.writes,) if board is not None}
    return 0


@dataclass(frozen=True)
class _Known:
    """A function with the registers that have values, and those that are in flight, in front of each instruction."""

    function: Function
    valued: Mapping[int, frozenset[str]]
    flying: Mapping[int, frozenset[str]]


def _at(
    known: _Known,
    pieces: tuple[Fragment, Fragment],
    kernel: ptx.Kernel,
    allocation: registers.Allocation,
    control: int,
    at: int,
    written: frozenset[int],
) -> Claim:
    function, (begin, claim), state = known.function, pieces, allocation.state
    values = fragments.between(kernel)
    early, late = _free(known, at, written | state.registers)
    first = blocks(begin, early, {})
    where = {
        name: first[begin.register(door)] for door, number in sorted(begin.goes.items()) for name in (values[number],)
    }
    same = _coalesced(claim, values, where)
    second = blocks(claim, [one for one in late if one not in where.values()], same)
    uniform = _uniform(function, claim.used("UR") | begin.used("UR"), at)
    boards, gate = _boards(function, at)
    predicates, saved = _predicates(function, claim, at)
    asked = _asked(function, at)
    asking, lost = _predicates(function, begin, asked)
    if lost:
        raise UnsupportedError("the kernel needs every predicate where it would ask for the gate")
    names = Names(first, uniform, asking), Names(second, uniform, predicates)
    left = [one for one in late if one not in where.values() and one not in second.values()]
    if len(saved) > len(left):
        raise UnsupportedError("the kernel leaves too few registers for the claim")
    keep, give = _kept(saved, left)

    def nothing(name: str, number: int) -> list[New]:
        return []

    def comes(name: str, number: int) -> list[New]:
        return [] if where[name] == number else [writing.new(f"MOV R{number}, R{where[name]}")]

    def goes(name: str, number: int) -> list[New]:
        return [writing.new(f"MOV R{_of(state, name)}, R{number}")]

    through = fragments.CONTROL, values
    started, none = fragments.spliced(
        begin, through, names[0], dict.fromkeys(SCOREBOARDS, gate), nothing, nothing, "begin ", True
    )
    if none:
        raise UnsupportedError("ptxas put a part of a kernel's begin elsewhere")
    words = {fragments.CONTROL[number]: first[begin.register(door)] for door, number in begin.comes.items()}
    low, high = (words[name] for name in fragments.CONTROL)
    if low % 2 or high != low + 1:
        raise UnsupportedError("ptxas gave the control block's address no pair of registers")
    load = writing.new(f"LDC.64 R{low}, c[0x3][{control:#x}]", Control(writes=gate))
    clocks, loads = _parted(started, frozenset({f"R{low}", f"R{high}"}))
    loads = [writing.new("NOP", Control(waits=frozenset({gate}))), *loads]
    state_names = fragments.STATE if kernel.sized else fragments.STATE[:-1]
    code, behind = fragments.spliced(claim, (values, state_names), names[1], boards, comes, goes, f"{_LABEL} ")
    descriptor = writing.new(f"ULDC.64 UR{DESCRIPTOR}, {fragments.descriptor(claim)}")
    after = [
        writing.new(f"MOV R{state.offset}, RZ"),
        *_recording(state),
        *(() if state.on is None else (descriptor,)),
        *_ids(allocation, written),
        *give,
        writing.new("BRA `()", Control(stall=5), to=insert.own(at)),
    ]
    start = writing.new("NOP", label=_LABEL)
    epoch = where[values[0]]
    test = [
        *(() if state.on is not None else (descriptor, *_at_rest(state), *_ids(allocation, written))),
        *_open(state, epoch, gate, registers.needed_predicates(function)[at]),
    ]
    highest = max(*first.values(), *second.values(), *left[: len(saved)])
    cold = timing.tight([start, *keep, *code, *after, *behind])
    begins = [load, *clocks]
    parts = [timing.tight(one) for one in (begins, loads, test)]
    if asked == at:  # with all waits in between
        parts = [parts[0], [], timing.tight([*loads, *test])]
    if not at:
        parts = [timing.tight([*begins, *loads, *test]), [], []]
    return Claim(tuple(parts[0]), tuple(parts[1]), tuple(parts[2]), tuple(cold), asked, at, highest)


def _asked(function: Function, at: int) -> int:
    """The first instruction in front of another one, in the entry's block, that waits for a scoreboard."""
    return next((one.at for one in function.instructions if one.at >= at or one.control.waits), at)


def _parted(code: list[New], address: frozenset[str]) -> tuple[list[New], list[New]]:
    """The instructions that do not depend on an address, and those that do."""
    known, free, bound = set(address), list[New](), list[New]()
    for new in code:
        assert new.seen is not None
        depends = bool(new.seen.reads & known)
        (bound if depends else free).append(new)
        known = known | new.seen.writes if depends else known - new.seen.writes
    return free, bound


def _at_rest(state: State) -> list[New]:
    """What a lane knows if the gate is shut, in a kernel without a predicate for it."""
    return [writing.new(f"MOV R{number}, RZ") for number in sorted(state.registers)]


def _open(state: State, epoch: int, gate: int, needed: frozenset[str]) -> list[New]:
    """A branch to the claim if the gate is open."""
    free = [one for one in range(_PREDICATES) if f"P{one}" not in needed] if state.on is None else [state.on]
    if not free:
        raise UnsupportedError("the kernel needs every predicate where it would claim")
    waits = Control(waits=frozenset({gate}))
    return [
        writing.new(f"ISETP.NE.U32.AND P{free[0]}, PT, R{epoch}, RZ, PT", waits),
        writing.new(f"@P{free[0]} BRA `()", Control(stall=5), to=_LABEL),
    ]


def _ids(allocation: registers.Allocation, written: frozenset[int]) -> list[New]:
    """The ids and values of records that have registers of their own; of others, marks write all words."""
    keys = {quad: key for key, quad in allocation.quads.items()}
    return [
        replace(writing.new(f"IMAD.MOV.U32 R{quad + word}, RZ, RZ, {value:#x}"), word_of=Word(keys[quad], "always"))
        for quad, own in sorted(allocation.own.items())
        for word, value in ((1, own), (3, 0))
        if quad + word not in written
    ]


def _kept(predicates: tuple[int, ...], free: list[int]) -> tuple[list[New], list[New]]:
    """Instructions that keep predicates in registers, and that bring them back."""
    pairs = list(zip(predicates, free, strict=False))
    keep = [writing.new(f"P2R R{into}, PR, RZ, {1 << one:#x}") for one, into in pairs]
    give = [writing.new(f"ISETP.NE.U32.AND P{one}, PT, R{of}, RZ, PT") for one, of in pairs]
    return keep, give


def _of(state: State, name: str) -> int:
    """The register of a value of the state."""
    number = {"base lo": state.base, "base hi": state.address + 1, "clocks": state.clocks, "last": state.last}[name]
    assert number is not None
    return number


def _recording(state: State) -> list[New]:
    """A lane without a slab has the high word 0."""
    if state.on is None:
        return []
    return [writing.new(f"ISETP.NE.U32.AND P{state.on}, PT, R{state.address + 1}, RZ, PT")]


def _free(known: _Known, at: int, taken: frozenset[int]) -> tuple[list[int], list[int]]:
    """Registers without a value in front of an instruction of the entry's block: those that nothing used before it; and
    all that no instruction in flight uses.
    """
    ahead = [one for one in known.function.instructions if one.at < at]
    touched = frozenset[str]().union(*(one.reads | one.writes for one in ahead))
    nothing = frozenset[str]()
    valued, flying = (some.get(at, nothing) if at else nothing for some in (known.valued, known.flying))
    early, late = (
        {int(name[1:]) for name in names if name[0] == "R"} | taken | _RESERVED
        for names in (valued | touched, valued | flying)
    )
    every = range(_HIGHEST + 1)
    return [one for one in every if one not in early], [one for one in every if one not in late]


def _uniform(function: Function, used: frozenset[int], at: int) -> dict[int, int]:
    """Uniform registers that the kernel does not use; at the entry, all are free."""
    if not at:
        return {}
    busy = {int(name[2:]) for one in function.instructions for name in one.reads | one.writes if name.startswith("UR")}
    for shift in range(0, _UNIFORM, 2):
        if all(number + shift < _UNIFORM and number + shift not in busy for number in used):
            return {number: number + shift for number in used}
    raise UnsupportedError(f"{function.name} leaves no uniform registers for the claim")


def _predicates(function: Function, fragment: Fragment, at: int) -> tuple[dict[int, int], tuple[int, ...]]:
    """Other predicates for a fragment's: those without a value in front of an instruction first; and those that have
    one, which must be kept meanwhile.
    """
    if not at:
        return {}, ()
    needed = registers.needed_predicates(function)[at]
    if any(name.startswith("UP") for name in needed) and fragment.used("UP"):
        raise UnsupportedError(f"{function.name} has a uniform predicate where it would claim")
    order = sorted(range(_PREDICATES), key=lambda number: f"P{number}" in needed)
    used = sorted(fragment.used("P"))
    chosen = dict(zip(used, order, strict=False))
    return chosen, tuple(number for number in chosen.values() if f"P{number}" in needed)


def _boards(function: Function, at: int) -> tuple[dict[int, int], int]:
    """Scoreboards of the claim, of which none is counted in flight by a DEPBAR; and the gate's."""
    free = registers.uncounted(function)
    ahead = [one.control for one in function.instructions if one.at < at]
    uses = [board for code in ahead for board in (code.writes, code.reads, *code.waits)]
    free.sort(key=uses.count)
    gate = free[0]
    return {board: free[board % len(free)] for board in SCOREBOARDS}, gate


def _coalesced(claim: Fragment, values: tuple[str, ...], where: dict[str, int]) -> dict[int, int]:
    """Registers of the claim that can be those of the begin's values: written by one door, and by nothing before."""
    doors: dict[int, list[int]] = {}
    for at in claim.comes:
        doors.setdefault(claim.register(at), []).append(at)
    found = {
        number: where[values[claim.comes[ats[0]]]]
        for number, ats in doors.items()
        if len(ats) == 1 and not _written_before(claim, number, ats[0])
    }
    rows = _rows(claim)
    return {
        number: to
        for number, to in found.items()
        if all(
            found.get(first + n) == found[first] + n and found[first] % (4 if count > 2 else 2) == 0
            for first, count in rows
            if first <= number < first + count and first in found
            for n in range(count)
        )
        and all(first in found for first, count in rows if first <= number < first + count)
    }


def _written_before(claim: Fragment, number: int, at: int) -> bool:
    return any(f"R{number}" in one.writes for one in claim.code if one.at < at)


def _rows(fragment: Fragment) -> tuple[tuple[int, int], ...]:
    """Registers that must stay in a row; rows that overlap are one."""
    merged = list[tuple[int, int]]()
    for first, count in sorted(set(fragments.groups(fragment))):
        if merged and first < merged[-1][0] + merged[-1][1]:
            begin = merged[-1][0]
            merged[-1] = begin, max(merged[-1][1], first + count - begin)
        else:
            merged.append((first, count))
    return tuple(merged)


def blocks(fragment: Fragment, free: list[int], given: dict[int, int]) -> dict[int, int]:
    """Other numbers for a fragment's registers.

    Args:
        fragment: the fragment.
        free: the numbers that may be used.
        given: registers that have their numbers already.
    """
    code = fragment.code
    used = {int(name[1:]) for one in code for name in one.reads | one.writes if name[0] == "R"}
    used |= {fragment.register(at) for at in (*fragment.comes, *fragment.goes)}
    rows = [(first, count) for first, count in _rows(fragment) if first not in given]
    single = used - {first + n for first, count in _rows(fragment) for n in range(count)} - given.keys()
    found, left = dict(given), [one for one in free if one not in given.values()]
    for first, count in [*sorted(rows, key=lambda row: -row[1]), *((one, 1) for one in sorted(single))]:
        step = 4 if count > 2 else count
        start = next(_starts(left, first, count, step), None)
        if start is None:
            raise UnsupportedError("the kernel leaves too few registers for the claim")
        for n in range(count):
            found[first + n] = start + n
            left.remove(start + n)
    return found


def _starts(left: list[int], first: int, count: int, step: int) -> Iterator[int]:
    """The numbers at which a row fits: as far from a multiple of `step` as it was."""
    return (one for one in left if one % step == first % step and all(one + n in left for n in range(count)))
