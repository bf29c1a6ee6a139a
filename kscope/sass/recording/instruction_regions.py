"""The regions of a recorded kernel's instructions, kept in its cubin for PC samples."""

from __future__ import annotations

from ...machine_code import elf, instruction_regions
from ...marks.names import split
from ..cubin import insert
from ..cubin.insertion import Insertion
from ..placing import basic_blocks
from . import regions


def with_regions(data: bytes, insertion: Insertion, machine: basic_blocks.Machine, text: basic_blocks.Text) -> bytes:
    """Return the cubin with the region of each instruction, by the statement from which it comes.

    Args:
        data: result of insert.inserted().
        insertion: what was inserted.
        machine: the function before.
        text: its text.
    """
    file, function = elf.read(data), machine.function
    strings = file.find(instruction_regions.SECTION)
    if strings is None:
        return data
    moved, stacks = insert.places(function, insertion), dict[int, instruction_regions.Stack | None]()
    stacks |= dict.fromkeys(insert.inserted_addresses(function, insertion))
    named = {at: tuple(split(name)[0] for name in names) for at, names in regions.open_regions(text).items()}
    stacks |= {moved[one.at]: named.get(machine.statements.get(one.at, -1)) for one in function.instructions}
    content = instruction_regions.with_segments(strings.content, function.name, stacks)
    return elf.write(file, {instruction_regions.SECTION: content})
