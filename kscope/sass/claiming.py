"""Where a kernel claims its slab: the gate is asked for at the entry, the rest stands where the kernel's own loads are
on their way.

    begin   at the entry: clocks, the control block's address, loads of the gate
    claim   in front of the first wait for memory: lanes, atomic, head

Until the claim, what the begin loads is in registers that the kernel does not use yet. A kernel without such a place,
or without the registers, claims at its entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .. import ptx
from ..errors import UnsupportedError
from . import forms, fragments, hazards, lending, registers
from .control import SCOREBOARDS, Control
from .fragments import Fragment
from .hazards import CONTROL_FLOW
from .insert import New
from .instructions import BYTES, Function
from .registers import DESCRIPTOR, State
from .renaming import Names

_LOADS = frozenset({"LDG", "LDGSTS", "LD", "UTMALDG", "UBLKCP"})
_STOPS = frozenset({"BAR", "SYNCS", "DEPBAR", "LDGDEPBAR", "WARPGROUP", "BSSY", "WARPSYNC", "USETMAXREG"})
_STEP = 8 * BYTES
"""Between the places that are tried, from the last one to the entry."""
_HIGHEST, _UNIFORM, _PREDICATES = 254, 60, 7
_RESERVED = frozenset({0, 1})


@dataclass(frozen=True)
class Claim:
    """The claim of a kernel.

    Attributes:
        begin: what stands at the entry.
        claim: what stands at `at`.
        behind: what stands behind the kernel.
        at: the instruction that the claim stands in front of.
        highest: the highest number of a register that begin and claim use.
    """

    begin: tuple[New, ...]
    claim: tuple[New, ...]
    behind: tuple[New, ...]
    at: int
    highest: int


def placed(
    function: Function,
    pieces: tuple[Fragment, Fragment],
    kernel: ptx.Kernel,
    allocation: registers.Allocation,
    marks: tuple[int, int],
    control: int,
    most: int,
) -> Claim:
    """Place the claim of a kernel.

    Args:
        function: its code.
        pieces: begin and claim.
        kernel: what their texts depend on.
        allocation: registers of records and state.
        marks: the first address at which a region begins, and the first at which one is stored.
        control: offset of the control block's address in constant bank 3.
        most: registers a thread that it may use.

    Raises:
        UnsupportedError: it cannot be placed at the entry either.
    """
    begins, stores = marks
    for at in (*range(_late(function, stores), 0, -_STEP), 0):
        kept = _numbers(allocation) if begins < at else allocation.state.registers
        try:
            found = _at(function, pieces, kernel, allocation.state, control, at, kept)
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


def _at(
    function: Function,
    pieces: tuple[Fragment, Fragment],
    kernel: ptx.Kernel,
    state: State,
    control: int,
    at: int,
    taken: frozenset[int],
) -> Claim:
    begin, claim = pieces
    values = fragments.between(kernel)
    free = _free(function, at, taken)
    first = blocks(begin, free, {})
    where = {
        name: first[begin.register(door)] for door, number in sorted(begin.goes.items()) for name in (values[number],)
    }
    same = _coalesced(claim, values, where)
    second = blocks(claim, [one for one in free if one not in where.values()], same)
    uniform = _uniform(function, claim.used("UR") | begin.used("UR"), at)
    boards, gate = _boards(function, at)
    predicates, saved = _predicates(function, claim, at)
    names = Names(first, uniform, {}), Names(second, uniform, predicates)
    left = [one for one in free if one not in where.values() and one not in second.values()]
    if len(saved) > len(left):
        raise UnsupportedError("the kernel leaves too few registers for the claim")
    keep, give = _kept(saved, left)

    def control_word(name: str, number: int, code: Control) -> list[New]:
        of = DESCRIPTOR + fragments.CONTROL.index(name)
        return [New(forms.word(f"MOV R{number}, UR{of}", Control(stall=fragments.MOVED)))]

    def nothing(name: str, number: int, code: Control) -> list[New]:
        return []

    def comes(name: str, number: int, code: Control) -> list[New]:
        if where[name] == number:
            return []
        return [New(forms.word(f"MOV R{number}, R{where[name]}", Control(stall=fragments.MOVED)))]

    def goes(name: str, number: int, code: Control) -> list[New]:
        return [New(forms.word(f"MOV R{_of(state, name)}, R{number}", Control(stall=2, waits=code.waits)))]

    load = New(forms.word(f"ULDC.64 UR{DESCRIPTOR}, c[0x3][{control:#x}]", Control(stall=fragments.SETTLED)))
    to_gate = dict.fromkeys(SCOREBOARDS, gate)
    through = fragments.CONTROL, values
    started, none = fragments.spliced(begin, through, names[0], to_gate, control_word, nothing, "begin ", True)
    if none:
        raise UnsupportedError("ptxas put a part of a kernel's begin elsewhere")
    state_names = fragments.STATE if kernel.sized else fragments.STATE[:-1]
    code, behind = fragments.spliced(claim, (values, state_names), names[1], boards, comes, goes, "claim ")
    after = [
        New(forms.word(f"MOV R{state.offset}, RZ", Control(stall=fragments.SETTLED))),
        *_recording(state),
        New(forms.word(f"ULDC.64 UR{DESCRIPTOR}, {fragments.descriptor(claim)}", Control(stall=fragments.SETTLED))),
    ]
    started = [load, *started]
    come = New(forms.word("NOP", Control(stall=hazards.GUARD, waits=frozenset({gate}))))
    highest = max(*first.values(), *second.values(), *left[: len(saved)])
    counts = New(forms.word("NOP", Control(stall=hazards.COUNTED)))
    return Claim(tuple(started), (counts, come, *keep, *code, *after, *give), tuple(behind), at, highest)


def _kept(predicates: tuple[int, ...], free: list[int]) -> tuple[list[New], list[New]]:
    """Instructions that keep predicates in registers, and that bring them back."""
    moved, tested = Control(stall=fragments.MOVED), Control(stall=hazards.GUARD)
    pairs = list(zip(predicates, free, strict=False))
    keep = [New(forms.word(f"P2R R{into}, PR, RZ, {1 << one:#x}", moved)) for one, into in pairs]
    give = [New(forms.word(f"ISETP.NE.U32.AND P{one}, PT, R{of}, RZ, PT", tested)) for one, of in pairs]
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
    return [New(forms.word(f"ISETP.NE.U32.AND P{state.on}, PT, R{state.address + 1}, RZ, PT", Control(stall=13)))]


def _numbers(allocation: registers.Allocation) -> frozenset[int]:
    """Every register of records and state."""
    records = {first + n for first in allocation.quads.values() for n in range(registers.RECORD)}
    return frozenset(records) | allocation.state.registers


def _free(function: Function, at: int, taken: frozenset[int]) -> list[int]:
    """Registers without a value in front of an instruction of the entry's block, and that nothing used before it."""
    ahead = [one for one in function.instructions if one.at < at]
    touched = frozenset[str]().union(*(one.reads | one.writes for one in ahead))
    if at:
        touched |= lending.live(function)[at]
    busy = {int(name[1:]) for name in touched if name[0] == "R"} | taken | _RESERVED
    return [number for number in range(_HIGHEST + 1) if number not in busy]


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
    gate = min(free, key=lambda board: (uses.count(board), board))
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
