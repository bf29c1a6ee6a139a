"""A kernel of plain machine code becomes one that records: claim at the entry, records at its marks, end at its exits.

A region has four registers in a row, which are its record. Its begin is one clock read into the first of them; its end
is a clock read into the third, and a store of all four.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from .. import ptx
from ..capture import layout, wire
from ..errors import UnsupportedError
from ..machine_code.occupancy import warps_by_registers
from ..marks.grammar import Mark
from . import (
    claiming,
    clobbers,
    elf,
    forms,
    fragments,
    hazards,
    info,
    insert,
    labels,
    place,
    reading,
    registers,
    sections,
)
from .control import SCOREBOARDS, Control
from .fragments import Fragment
from .insert import Insertion, New
from .instructions import BYTES, Function
from .registers import DESCRIPTOR, State
from .renaming import Names

Assembler = Callable[[str, bool], bytes]
"""ptxas: from a text to a cubin. The second argument: whether it needs a line table."""
_BANK = ".nv.constant3"
_MOST, _WARP = 255, 32
"""Registers that a thread can have; threads of a warp."""


@dataclass(frozen=True)
class Recorded:
    """A cubin that records.

    Attributes:
        data: the cubin.
        registers: of a thread, before and now.
        warps: that an SM has registers for, before and now.
        spots: where each mark stands, in the order of the marks.
    """

    data: bytes
    registers: tuple[int, int]
    warps: tuple[int, int]
    spots: tuple[place.Spot, ...]


def recorded(text: str, kernel: ptx.Kernel, assemble: Assembler) -> Recorded:
    """Assemble a module with marks without them, and insert what records them.

    The text is assembled as it is, where marks are comments, and once more with labels. Both give the same code, but
    only the first one has the line table of the user's source.

    Args:
        text: PTX of one kernel with marks, and with the module's symbols.
        kernel: what the texts of the protocol depend on.
        assemble: ptxas, which may be called in threads.

    Returns:
        The cubin, checked.

    Raises:
        UnsupportedError: something of it is not supported; the message says what.
    """
    _check_options(kernel)
    labeled = labels.labeled(text)
    registers.check(labeled.marks)
    head = "".join(
        f"{line}\n" for line in text.splitlines() if line.startswith((".version", ".target", ".address_size"))
    )
    pieces = fragments.begin_text(head, kernel), fragments.claim_text(head, kernel), fragments.end_text(head)
    texts = (text, labeled.text, *pieces)
    with ThreadPoolExecutor(len(texts)) as pool:
        data, tagged, *made = pool.map(assemble, texts, (False, True, False, False, False))
    begin, claim, end = map(fragments.read, made)
    (function,), file = reading.functions(data), elf.read(data)
    sections.check(file, function)
    _check_same_code(file, tagged, function)
    if 0 in function.targets:
        raise UnsupportedError(f"{function.name} runs its first instruction again")
    spots = place.spots(function, labeled, labels.places(elf.read(tagged), function, labeled))
    before, threads = _counts(file, function)
    chosen = _chosen(function, labeled.marks, before, threads, kernel.sized)
    state = chosen.state
    most = _most(max(before, chosen.count), threads)
    marks = tuple(zip(labeled.marks, spots, strict=True))
    where = claiming.placed(function, (begin, claim), kernel, chosen, marks, _control(file), most)
    count = max(before, chosen.count, where.highest + 1 + registers.EXTRA)
    ids = [
        New(forms.word(f"IMAD.MOV.U32 R{quad + word}, RZ, RZ, {value:#x}", Control(stall=2)))
        for quad in sorted(set(chosen.records))
        for word, value in ((1, _id(chosen.own[quad]) if quad in chosen.own else 0), (3, 0))
    ]
    controls, put, needed = dict[int, Control](), dict[int, list[New]](), registers.needed_predicates(function)
    put[0] = list(where.begin)
    put.setdefault(where.at, []).extend([*where.claim, *ids, New(forms.word("NOP", Control(stall=fragments.SETTLED)))])
    for mark, quad, spot in zip(labeled.marks, chosen.records, spots, strict=True):
        made_here = (
            _enter(quad, state, None if quad in chosen.own else mark.name)
            if mark.act == "enter"
            else _leave(quad, state, kernel, spot.at, needed[spot.at])
        )
        here = put.setdefault(spot.at, [])
        if spot.behind_wait and not here:
            here.append(New(forms.word("NOP", Control(stall=place.STOPS))))
        here.extend(made_here)
    for one in function.instructions:
        if one.name == "EXIT":
            put.setdefault(one.at, []).extend(_end(function, one.at, end, state))
            controls |= _read_before(function, one.at, state)
    insertion = Insertion(put, tail=where.behind, registers=count, attributes=claim.stack, controls=controls)
    out = insert.inserted(data, function, insertion)
    _check(out, function.name, insert.added(function, insertion))
    warps = (warps_by_registers(before), warps_by_registers(count))
    return Recorded(out, (before, count), warps, spots)


def _check_same_code(file: elf.Elf, labeled: bytes, function: Function) -> None:
    """Refuse a kernel of which ptxas made other code because of the labels."""
    plain, other = (one.find(function.section) for one in (file, elf.read(labeled)))
    if plain is None or other is None or plain.content != other.content:
        raise UnsupportedError(f"{function.name}: this ptxas makes other code of other line numbers")


def _control(file: elf.Elf) -> int:
    """Where the address of the control block is in constant bank 3."""
    for one in file.symbols():
        if one.name == wire.CTL_SYMBOL and file.sections[one.section].name == _BANK:
            return one.value
    raise UnsupportedError(f"the cubin has no {wire.CTL_SYMBOL} in {_BANK}")


def _check_options(kernel: ptx.Kernel) -> None:
    options = kernel.recording
    for what, known in (
        (f"fill={options.fill!r}", options.fill == "ring"),
        (f"clock={options.clock!r}", options.clock == "cycles"),
        (f"the strategies {', '.join(kernel.specs)}", len(kernel.specs) == 1 and not kernel.late),
        (f"sm_{kernel.arch}", kernel.arch == 90),
    ):
        if not known:
            raise UnsupportedError(f"{what} is not supported behind the assembler")


def _chosen(
    function: Function, marks: tuple[Mark, ...], before: int, threads: int, sized: bool
) -> registers.Allocation:
    """Registers for each region if as many blocks then fit on an SM as before, else for as few regions as possible."""

    def fitting(count: int) -> int:
        return warps_by_registers(count) // max(1, threads // _WARP)

    many = registers.allocated(function, marks, registers.apart(marks), sized)
    few = registers.allocated(function, marks, registers.shared(marks), sized)
    chosen = many if fitting(max(before, many.count)) == fitting(before) else min(many, few, key=lambda one: one.count)
    if chosen.count > _MOST or not fitting(max(before, chosen.count)):
        raise UnsupportedError(f"{function.name} would need {chosen.count} registers in each of {threads} threads")
    return chosen


def _most(count: int, threads: int) -> int:
    """The most registers a thread with which as many blocks fit on an SM."""
    blocks = warps_by_registers(count) // max(1, threads // _WARP)
    return max(one for one in range(count, _MOST + 1) if warps_by_registers(one) // max(1, threads // _WARP) == blocks)


def _counts(file: elf.Elf, function: Function) -> tuple[int, int]:
    """The function's registers, and threads of a block at most."""
    symbols, shared, own = file.symbols(), file.find(".nv.info"), file.find(f".nv.info.{function.name}")
    assert shared is not None and own is not None
    count = next(
        int.from_bytes(one.payload[4:8], "little")
        for one in info.read(shared.content)
        if one.number == info.REGISTERS and symbols[int.from_bytes(one.payload[:4], "little")].name == function.name
    )
    threads = 1024
    for one in info.read(own.content):
        if one.number in (info.THREADS, info.MOST_THREADS):
            x, y, z = (int.from_bytes(one.payload[at : at + 4], "little") for at in (0, 4, 8))
            threads = x * y * z
    return count, threads


def _id(name: str) -> int:
    return layout.record_id(name, layout.Kind.SPAN)


def _enter(quad: int, state: State, name: str | None) -> list[New]:
    """The begin of a region. name: its name, if other regions have the same registers."""
    read = New(forms.word(f"CS2R.32 R{quad}, SR_CLOCKLO", Control(waits=frozenset({state.scoreboard}))))
    if name is None:
        return [read]
    return [read, New(forms.word(f"IMAD.MOV.U32 R{quad + 1}, RZ, RZ, {_id(name):#x}", Control()))]


def _leave(quad: int, state: State, kernel: ptx.Kernel, at: int, needed: frozenset[str]) -> list[New]:
    """The end of a region in front of the instruction at `at`, where the code needs some predicates."""
    last = f"R{state.last}" if state.last is not None else f"{int(kernel.last) << fragments.LOG2_RECORD:#x}"
    waits = frozenset({state.scoreboard})
    on, test = state.on, list[New]()
    if on is None:  # the kernel uses all predicates: compute it in one that is free here
        on = next((number for number in range(7) if f"P{number}" not in needed), None)
        if on is None:
            raise UnsupportedError(f"every predicate is in use at {at:#x}")
        text = f"ISETP.NE.U32.AND P{on}, PT, R{state.address + 1}, RZ, PT"
        test = [New(forms.word(text, Control(stall=2)))]
    code: tuple[tuple[str, Control], ...] = (
        (f"CS2R.32 R{quad + 2}, SR_CLOCKLO", Control()),
        (f"LOP3.LUT R{state.address}, R{state.offset}, {last}, RZ, 0xc0, !PT", Control(stall=6, waits=waits)),
        (f"IADD3 R{state.address}, R{state.address}, R{state.base}, RZ", Control(stall=6 if not test else 13)),
        (
            f"@P{on} STG.E.128 desc[UR{DESCRIPTOR}][R{state.address}.64+{wire.HEAD_BYTES:#x}], R{quad}",
            Control(stall=2, reads=state.scoreboard),
        ),
        (f"IADD3 R{state.offset}, R{state.offset}, {layout.RECORD_BYTES:#x}, RZ", Control(stall=6)),
    )
    made = [New(forms.word(text, control)) for text, control in code]
    return [made[0], *test, *made[1:]]


def _read_before(function: Function, at: int, state: State) -> dict[int, Control]:
    """ptxas counts no store right in front of an exit. With a scoreboard, the end of the slab can wait for it.

    The instructions of memory read their operands in order, so the last one counts for all.
    """
    number = at // BYTES - 1
    while number >= 0 and function.instructions[number].name not in hazards.CONTROL_FLOW:
        one = function.instructions[number]
        if one.name in place.LANDMARKS and any(register[0] == "R" for register in one.reads):
            code = one.control
            counted = code.reads is not None or code.writes is not None
            return {} if counted else {one.at: replace(code, reads=state.scoreboard)}
        number -= 1
    return {}


def _end(function: Function, at: int, end: Fragment, state: State) -> Iterator[New]:
    """In front of an exit: the end of the slab, for the threads that leave."""
    leaves = function.instructions[at // BYTES]
    waits = Control(stall=2, waits=frozenset(SCOREBOARDS))
    if leaves.conditional:
        # the others pass it by; these leave by an exit of their own, because their predicate may be overwritten
        guard = leaves.guard[2:] if leaves.guard.startswith("@!") else f"!{leaves.guard[1:]}"
        if leaves.guard.lstrip("@!").startswith("U"):
            raise UnsupportedError(f"{function.name} leaves by a uniform predicate at {at:#x}")
        yield New(forms.word(f"@{guard} BRA `()", Control(stall=5, waits=leaves.control.waits)), to=f"stay {at:x}")
    yield New(forms.word("NOP", waits))
    yield from _closing(end, state, f"end {at:x} ")
    if leaves.conditional:
        yield New(forms.word("EXIT", Control(stall=5)))
        yield New(forms.word("NOP", Control(stall=2)), label=f"stay {at:x}")


def _closing(end: Fragment, state: State, prefix: str) -> list[New]:
    """The end of a slab. At an exit, only the state has a value."""

    def comes(name: str, number: int, code: Control) -> list[New]:
        text = {
            "base lo": f"MOV R{number}, R{state.base}",
            "base hi": f"MOV R{number}, R{state.address + 1}",
            "count": f"SHF.R.U32.HI R{number}, RZ, {fragments.LOG2_RECORD:#x}, R{state.offset}",
            "clocks": f"MOV R{number}, R{state.clocks}",
        }[name]
        return [New(forms.word(text, Control(stall=fragments.MOVED)))]

    if len(uniform := sorted(end.used("UR"))) > 2 or end.used("UP"):
        raise UnsupportedError("ptxas put into the end of a slab what belongs to the warp")
    busy = claiming.state_numbers(state)
    numbers = claiming.blocks(end, [one for one in range(2, _MOST) if one not in busy], {})
    names = Names(numbers, dict(zip(uniform, (DESCRIPTOR, DESCRIPTOR + 1), strict=False)), {})
    code, behind = fragments.spliced(
        end, (fragments.END, ()), names, fragments.every_board(), comes, lambda *_: [], prefix
    )
    if behind:
        raise UnsupportedError("ptxas put a part of the end of a slab elsewhere")
    return code


def _check(data: bytes, name: str, new: Mapping[int, New]) -> None:
    """Refuse code that nvdisasm reads as another one, or that either checker finds wrong."""
    (function,) = [one for one in reading.functions(data) if one.name == name]
    for one in function.instructions:
        if (added := new.get(one.at)) is not None and added.proof is not None and not added.proof(one):
            raise UnsupportedError(f"{name}: nvdisasm reads {one} where another instruction was meant")
    places = frozenset(new)
    if found := (*hazards.check(function, places), *clobbers.check(function, places)):
        raise UnsupportedError(f"{name}: {found[0]}" + (f", and {len(found) - 1} more" if found[1:] else ""))
