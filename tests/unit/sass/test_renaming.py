"""A fragment with other registers is the same fragment: nvdisasm reads so."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kscope import ptx
from kscope.errors import UnsupportedError
from kscope.instrument.recording import Recording
from kscope.machine_code import elf
from kscope.sass.cubin import reading
from kscope.sass.cubin.instructions import Function, encoded
from kscope.sass.encoding import renaming
from kscope.sass.encoding.renaming import Names
from kscope.sass.recording import fragments

from .kernels import EACH, HEAD, assembled, functions, needs_tools

pytestmark = needs_tools
KERNEL = ptx.Kernel(Recording(), ("elected",), 8, ("1", "2"), 90, size_offset="4096")
KERNELS = {"elected": KERNEL, "flat": replace(KERNEL, flat=True), "all": replace(KERNEL, specs=("all",))}


def pieces(tool: str, kind: str) -> tuple[bytes, list[Function]]:
    data = assembled(HEAD + fragments.text(KERNELS[kind]), tool, ())
    return data, [one for one in functions(data) if one.name == fragments.NAME]


def rotated(generator: random.Random) -> Names:
    """Other registers, by a step that keeps rows of four where they may begin."""
    step = 4 * generator.randrange(40)
    uniform = 2 * generator.randrange(15)
    return Names(
        {number: number + step for number in range(2, 60)},
        {number: number + uniform for number in range(32)},
        {number: (number + step) % 7 for number in range(7)},
        {number: (number + step + 1) % 7 for number in range(7)},
    )


@pytest.mark.parametrize(
    "kind", ["elected", *(pytest.param(one, marks=pytest.mark.variation) for one in ("flat", "all"))]
)
@pytest.mark.parametrize("tool", EACH)
def test_every_instruction_of_the_protocol_is_read_with_the_other_registers(tool: str, kind: str) -> None:
    data, found = pieces(tool, kind)
    assert len(found) == 1
    file, generator = elf.read(data), random.Random(tool + kind)
    names = {one.name: rotated(generator) for one in found}
    contents = {
        one.section: encoded(tuple(renaming.renamed(each, names[one.name]) for each in one.instructions))
        for one in found
    }
    after = {one.name: one for one in reading.functions(elf.write(file, contents))}
    for one in found:
        pairs = list(zip(one.instructions, after[one.name].instructions, strict=True))
        assert all(renaming.same(made, each, names[one.name]) for each, made in pairs)
        other = Names({}, {}, {})
        changed = [each for each, made in pairs if each.word != made.word]
        assert changed and not any(renaming.same(made, each, other) for each, made in pairs if each in changed)


def test_a_register_that_no_field_has_is_refused() -> None:
    _, (claim, *_) = pieces(EACH[0] if isinstance(EACH[0], str) else "", "elected")
    move = next(one for one in claim.instructions if one.code.startswith("IADD3") and one.operands[0].startswith("R"))
    with pytest.raises(UnsupportedError, match="no field of"):
        renaming.renamed(replace(move, operands=("R99", *move.operands[1:])), Names({}, {}, {}))


def test_rows_of_registers_stay_rows() -> None:
    """Addresses, wide products and data of several words."""
    _, found = pieces(EACH[0] if isinstance(EACH[0], str) else "", "elected")
    for one in found:
        rows = dict(sorted(renaming.groups(one.instructions)))
        for each in one.instructions:
            if each.code.startswith(("LDG.E.128", "STG.E.128")):
                data = each.operands[0 if each.name == "LDG" else -1]
                assert rows[int(data[1:].removesuffix(".reuse"))] == 4
