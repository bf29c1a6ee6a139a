"""Insert instructions into a function of a cubin, and correct everything that names an address in its code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...errors import UnsupportedError
from ...machine_code import elf
from . import attributes, branches, debug_frames, line_tables, sections
from .control_codes import control, controlled
from .insertion import Insertion, New
from .instructions import BYTES, Function, Instruction, encoded

_PADDING = 0x000FC000000000000000000000007918
"""A NOP like the padding of ptxas."""
_NOP, _EXIT = 0x918, 0x94D
_STEP = 128
_COUNT_AT = 24
"""Where older assemblers keep the number of registers in a code section's `info` word."""


@dataclass(frozen=True)
class _Layout:
    """New addresses. starts: targets of branches to old addresses; places: the instructions themselves."""

    starts: dict[int, int]
    places: dict[int, int]
    labels: dict[str, int]
    size: int

    def place(self, at: int) -> int:
        """The new address of a byte."""
        if at // BYTES * BYTES not in self.places:
            raise UnsupportedError(f"the cubin names {at:#x}, where the kernel has no code")
        return self.places[at // BYTES * BYTES] + at % BYTES

    def within(self, at: int) -> int:
        """The same for tables, which begin at the function's first byte even if code was inserted before it."""
        return self.place(at) if at else 0


def inserted(data: bytes, function: Function, insertion: Insertion) -> bytes:
    """The cubin with instructions inserted into one of its functions.

    Args:
        data: the cubin.
        function: the function, as reading.functions() found it.
        insertion: what is inserted. If it is empty, the result is `data`.

    Raises:
        UnsupportedError: the cubin has a part that kscope does not know, so what names its code cannot be corrected.
    """
    file = elf.read(data)
    sections.check(file, function)
    if insertion.empty:
        return data
    items = tuple(_items(function, insertion))
    layout = _laid_out(function, items)
    words = list(_encoded(function, items, layout, insertion))
    words += [_PADDING] * ((layout.size - BYTES * len(words)) // BYTES)
    contents = {function.section: encoded(tuple(words))}
    listed = [(n * BYTES, new.listed) for n, new in enumerate(_ordered(items)) if isinstance(new, New) and new.listed]
    contents |= _infos(file, function, words, layout, insertion, listed)
    contents |= _symbols(file, function, layout)
    contents |= _relocated(file, function, layout)
    counts = dict[str, int]()
    section = file.find(function.section)
    if section is not None and insertion.registers is not None and section.info >> _COUNT_AT:
        counts[function.section] = section.info & (1 << _COUNT_AT) - 1 | insertion.registers << _COUNT_AT
    return elf.write(file, contents, counts)


def inserted_addresses(function: Function, insertion: Insertion) -> dict[int, New]:
    """The inserted instructions by their addresses in the new code."""
    ordered = _ordered(tuple(_items(function, insertion)))
    return {number * BYTES: item for number, item in enumerate(ordered) if isinstance(item, New)}


def borrowed_by_address(function: Function, insertion: Insertion) -> dict[int, frozenset[str]]:
    """Registers of the function that inserted instructions read, by address in the new code."""
    ordered = _ordered(tuple(_items(function, insertion)))
    return {n * BYTES: one.borrowed for n, one in enumerate(ordered) if isinstance(one, New) and one.borrowed}


def label_of(at: int) -> str:
    """The label of one of the function's own instructions: a branch to it skips what was inserted before."""
    return f"own {at:x}"


def places(function: Function, insertion: Insertion) -> dict[int, int]:
    """Where the function's own instructions are in the new code, by their addresses before."""
    return _laid_out(function, tuple(_items(function, insertion))).places


_Item = Instruction | New


def _items(function: Function, insertion: Insertion) -> Iterator[tuple[int, _Item | None]]:
    """The function's instructions and the inserted ones in their new order; (address, None) where branches lead to."""
    end = _code_end(function)
    for one in function.instructions:
        if one.at == end:
            yield from ((-1, new) for new in insertion.tail)
        yield one.at, None
        yield from ((-1, new) for new in insertion.before.get(one.at, ()))
        yield one.at, one
        yield from ((-1, new) for new in insertion.after.get(one.at, ()))
    if end == function.size:
        yield from ((-1, new) for new in insertion.tail)


def _ordered(items: Sequence[tuple[int, _Item | None]]) -> list[_Item]:
    return [item for _, item in items if item is not None]


def _code_end(function: Function) -> int:
    """The address after the last instruction that is not padding."""
    last = len(function.instructions)
    while last and function.instructions[last - 1].opcode == _NOP:
        last -= 1
    return last * BYTES


def _laid_out(function: Function, items: Sequence[tuple[int, _Item | None]]) -> _Layout:
    starts, places, labels, at = dict[int, int](), dict[int, int](), dict[str, int](), 0
    for address, item in items:
        if item is None:
            starts[address] = at
            continue
        if isinstance(item, Instruction):
            places[address] = labels[label_of(address)] = at
        elif item.label:
            if item.label in labels:
                raise ValueError(f"two inserted instructions are labeled {item.label}")
            labels[item.label] = at
        at += BYTES
    size = -(-at // _STEP) * _STEP
    starts[function.size] = places[function.size] = size
    return _Layout(starts, places, labels, size)


def _encoded(
    function: Function, items: Sequence[tuple[int, _Item | None]], layout: _Layout, insertion: Insertion
) -> Iterator[int]:
    ordered = _ordered(items)
    for number, item in enumerate(ordered):
        at, word = number * BYTES, item.word
        if isinstance(item, New):
            if item.to is not None:
                to = layout.labels[item.to] if isinstance(item.to, str) else layout.starts[item.to]
                word = branches.with_target(word, at, to, function.arch)
        else:
            word = insertion.replaced.get(item.at, word)
            if item.at in insertion.controls:
                word = controlled(word, insertion.controls[item.at])
            if item.target is not None:
                word = branches.with_target(word, at, layout.starts[item.target], function.arch)
            if number + 1 < len(ordered) and isinstance(ordered[number + 1], New):
                # an operand that was kept for the next instruction would be taken by the inserted one
                word = controlled(word, replace(control(word), reuse=0))
        yield word


def _infos(
    file: elf.Elf,
    function: Function,
    words: Sequence[int],
    layout: _Layout,
    insertion: Insertion,
    listed: Sequence[tuple[int, tuple[int, ...]]],
) -> dict[str, bytes]:
    """The attributes of the function and its registers."""
    contents = dict[str, bytes]()
    own = file.find(f".nv.info.{function.name}")
    if own is not None:
        exits = [number * BYTES for number, word in enumerate(words) if word & 0xFFF == _EXIT]
        made = [
            attributes.with_addresses(one, exits)
            if one.number == attributes.EXITS
            else attributes.move_addresses(one, layout.place)
            for one in attributes.read(own.content)
        ]
        contents[own.name] = attributes.write(
            attributes.with_more(attributes.with_listed(made, listed), insertion.attributes)
        )
    shared, registers = file.find(".nv.info"), insertion.registers
    if shared is not None and registers is not None:
        symbol = _symbol(file, function)
        contents[".nv.info"] = attributes.with_registers(shared.content, lambda at, n: registers if at == symbol else n)
    return contents


def _symbol(file: elf.Elf, function: Function) -> int:
    """The number of the function's symbol."""
    return next(n for n, one in enumerate(file.symbols()) if one.function and one.name == function.name)


def _symbols(file: elf.Elf, function: Function, layout: _Layout) -> dict[str, bytes]:
    section = file.number(function.section)
    places = {
        number: (layout.starts[one.value], layout.starts[one.value + one.size] - layout.starts[one.value])
        for number, one in enumerate(file.symbols())
        if one.section == section and one.size
    }
    return {file.table.name: file.with_symbols(places)}


def _relocated(file: elf.Elf, function: Function, layout: _Layout) -> dict[str, bytes]:
    """Relocations within the code, line tables and frames, and the relocations of these."""
    contents = dict[str, bytes]()
    for section, entries in file.relocations(function.section):
        contents[section.name] = elf.with_places(section, [layout.place(one.at) for one in entries])
    symbols, own = file.symbols(), file.number(function.section)
    for name in sections.DEBUG:
        table = file.find(name)
        if table is None:
            continue
        tables = file.relocations(name)
        mine = {one.at: layout.within for _, entries in tables for one in entries if symbols[one.symbol].section == own}
        if name == ".debug_frame":
            contents[name] = debug_frames.move_frames(table.content, mine)
            continue
        contents[name], fields = line_tables.move_lines(table.content, mine)
        for section, entries in tables:
            contents[section.name] = elf.with_places(section, [fields[one.at] for one in entries])
    return contents
