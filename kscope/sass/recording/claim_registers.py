"""Registers, predicates and scoreboards that a kernel leaves free for its claim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from ...errors import UnsupportedError
from ..checks import hazards
from ..cubin.control_codes import SCOREBOARDS
from ..cubin.instructions import BYTES, Function, Instruction
from . import fragments, registers
from .fragments import Fragment

PREDICATES = 7
"""Predicates of a thread."""
_HIGHEST, _UNIFORM = 254, 62
_RESERVED = frozenset({0, 1})


@dataclass(frozen=True)
class Known:
    """A function with its live registers, and those of loads and stores in flight, before each instruction."""

    function: Function
    valued: Mapping[int, frozenset[str]]
    flying: Mapping[int, frozenset[str]]


def free_registers(known: Known, at: int, taken: frozenset[int], state: frozenset[int]) -> tuple[list[int], list[int]]:
    """Registers without a value before an instruction of the entry's block: those that no earlier instruction uses; and
    all that no instruction in flight uses, including those of the lane's state.
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
    return [one for one in every if one not in early | state], [one for one in every if one not in late]


def uniform(known: Known, used: frozenset[int], at: int, taken: frozenset[int]) -> dict[int, int]:
    """Uniform registers that neither the kernel nor inserted code uses; then those without a value there. At the entry,
    the kernel's are free.
    """
    if not at and not used & taken:
        return {}
    function, nothing = known.function, frozenset[str]()
    own = (name for one in function.instructions[: at and None] for name in one.reads | one.writes)
    named, busy = _uniform(own) | taken, _uniform(known.valued.get(at, nothing) | known.flying.get(at, nothing)) | taken
    pairs = sorted({number & ~1 for number in used})
    every = range(registers.UNIFORM[-1], _UNIFORM, 2)
    free = list(dict.fromkeys(first for some in (named, busy) for first in every if not {first, first + 1} & some))
    if len(pairs) > len(free):
        raise UnsupportedError(f"{function.name} leaves no uniform registers for the claim")
    return {first + n: to + n for first, to in zip(pairs, free, strict=False) for n in range(2) if first + n in used}


def _uniform(names: Iterable[str]) -> set[int]:
    return {int(name[2:]) for name in names if name.startswith("UR")}


def predicates(function: Function, fragment: Fragment, at: int) -> tuple[dict[int, int], tuple[int, ...]]:
    """Replacements for a fragment's predicates: first those without a value before an instruction, then those whose
    value must be saved.
    """
    if not at:
        return {}, ()
    needed = registers.needed_predicates(function)[at]
    order = sorted(range(PREDICATES), key=lambda number: f"P{number}" in needed)
    used = sorted(fragment.used("P"))
    chosen = dict(zip(used, order, strict=False))
    return chosen, tuple(number for number in chosen.values() if f"P{number}" in needed)


def warp_predicates(function: Function, fragment: Fragment, at: int) -> dict[int, int]:
    """Replacements for a fragment's uniform predicates: those without a value before an instruction."""
    needed, used = registers.needed_predicates(function)[at] if at else frozenset[str](), sorted(fragment.used("UP"))
    free = [number for number in range(PREDICATES) if f"UP{number}" not in needed]
    if len(used) > len(free):
        raise UnsupportedError(f"{function.name} needs its uniform predicates where it would claim")
    return dict(zip(used, free, strict=False))


def boards(function: Function, at: int) -> tuple[dict[int, int], int, int]:
    """Scoreboards of the claim, none of which a DEPBAR counts; the gate's; and the instruction before which the gate's
    load is inserted.

    The claim's scoreboards count no kernel instruction there if possible: waiting for a shared one would wait for the
    kernel's loads. The gate's load is inserted where the kernel first waits for a scoreboard, or after its last use of
    the gate's scoreboard before the claim, so that the kernel does not wait for the gate together with its own
    operations.
    """
    free = registers.uncounted(function)
    ahead = [one for one in function.instructions if one.at < at]
    first = next((one.at for one in ahead if one.control.waits), at)

    def behind_uses(board: int) -> int:
        return max([first, *(one.at + BYTES for one in ahead if board in _used(one))])

    uses = [board for one in ahead for board in _used(one)]
    free.sort(key=lambda board: (behind_uses(board), uses.count(board)))
    counting = _counting(function).get(at, frozenset())
    some = [board for board in free if board not in counting] or free
    return {board: some[board % len(some)] for board in SCOREBOARDS}, free[0], behind_uses(free[0])


def _counting(function: Function) -> dict[int, frozenset[int]]:
    """The scoreboards that may count a kernel instruction before each instruction."""
    by_address = {one.at: one for one in function.instructions}
    found: dict[int, frozenset[int]] = {0: frozenset()}
    work = [0]
    while work:
        one = by_address[work.pop()]
        code = one.control
        after = found[one.at] - code.waits | {board for board in (code.writes, code.reads) if board is not None}
        for to in hazards.successors(one):
            if to in by_address and not (to in found and after <= found[to]):
                found[to] = found.get(to, frozenset()) | after
                work.append(to)
    return found


def _used(one: Instruction) -> list[int]:
    """The scoreboards that an instruction counts or waits for."""
    code = one.control
    return [board for board in (code.writes, code.reads, *code.waits) if board is not None]


def lasting_values(
    claim: Fragment, values: tuple[str, ...], chosen: Mapping[int, int], early: frozenset[int]
) -> dict[str, int]:
    """The values of the begin that can be in the claim's registers from the entry on, with these registers.

    Args:
        claim: the claim.
        values: names of the values, by number.
        chosen: the registers of the claim.
        early: registers that the kernel does not use before the claim.
    """
    entered = [number for at in claim.comes for _, number in claim.enters(at)]
    found = dict[str, int]()
    for at in claim.comes:
        row = [(values[value], number) for value, number in claim.enters(at)]
        if all(
            chosen[number] in early and entered.count(number) == 1 and not _written_before(claim, number, at)
            for _, number in row
        ):
            found |= {name: chosen[number] for name, number in row}
    return found


def unwritten_registers(claim: Fragment, chosen: Mapping[int, int]) -> frozenset[int]:
    """The claim's registers that nothing writes before all values have been loaded."""
    last = max(claim.comes)
    written = {f"R{number}" for at in claim.comes for _, number in claim.enters(at)}
    written |= {name for one in claim.code if one.at < last for name in one.writes}
    return frozenset(to for number, to in chosen.items() if f"R{number}" not in written)


def left_there(claim: Fragment, values: Mapping[int, int]) -> dict[int, int]:
    """Registers of the claim in which an outgoing value may remain: single ones with one placeholder access.

    Args:
        claim: the claim.
        values: the register of each outgoing value, by number.
    """
    in_rows = {first + n for first, count in _rows(claim) for n in range(count)}
    numbers = [claim.register(at) for at in claim.goes]
    return {
        number: values[value]
        for number, value in zip(numbers, claim.goes.values(), strict=True)
        if value in values and number not in in_rows and numbers.count(number) == 1
    }


def _written_before(claim: Fragment, number: int, at: int) -> bool:
    return any(f"R{number}" in one.writes for one in claim.code if one.at < at)


def _rows(fragment: Fragment) -> tuple[tuple[int, int], ...]:
    """Registers that must stay consecutive, or are loaded as one; overlapping groups are merged."""
    entered = [list(fragment.enters(at)) for at in fragment.comes]
    merged = list[tuple[int, int]]()
    for first, count in sorted({*fragments.groups(fragment), *((row[0][1], len(row)) for row in entered if row[1:])}):
        if merged and first < merged[-1][0] + merged[-1][1]:
            begin = merged[-1][0]
            merged[-1] = begin, max(merged[-1][1], first + count - begin)
        else:
            merged.append((first, count))
    return tuple(merged)


def blocks(
    fragment: Fragment, early: list[int], late: list[int], given: dict[int, int], last: frozenset[int] = frozenset()
) -> dict[int, int]:
    """Assign other numbers to a fragment's registers.

    Args:
        fragment: the fragment.
        early: the numbers for incoming values, if there are enough.
        late: the numbers that may be used.
        given: registers that have their numbers already.
        last: registers to which outgoing values are moved at the end: no outgoing value is computed in one of them.
    """
    code = fragment.code
    comes = {number for at in fragment.comes for _, number in fragment.enters(at)}
    goes = {fragment.register(at) for at in fragment.goes}
    used = {int(name[1:]) for one in code for name in one.reads | one.writes if name[0] == "R"} | comes | goes
    rows = _rows(fragment)
    single = used - {first + n for first, count in rows for n in range(count)}
    found = dict(given)
    every_number = [*(one for one in late if one not in early), *early]
    every = [*rows, *((one, 1) for one in sorted(single - given.keys()))]
    for first, count in sorted(every, key=lambda row: (not comes & set(range(row[0], row[0] + row[1])), -row[1])):
        row = frozenset(range(first, first + count))
        taken = frozenset(found.values()) | (last if goes & row else frozenset())
        choices = [early] * bool(comes & row) + [every_number]
        starts = (_starts([one for one in some if one not in taken], first, count) for some in choices)
        start = next(chain.from_iterable(starts), None)
        if start is None:
            raise UnsupportedError("the kernel leaves too few registers for the claim")
        found |= {first + n: start + n for n in range(count)}
    return found


def _starts(left: list[int], first: int, count: int) -> Iterator[int]:
    """The numbers at which a row fits: as far from a multiple of its alignment as it was."""
    step = 4 if count > 2 else count
    return (one for one in left if one % step == first % step and all(one + n in left for n in range(count)))
