"""Every learned form means what nvdisasm reads in it, whatever its operands; what was not learned is refused."""

from __future__ import annotations

import random
import re

import pytest

from kscope.errors import UnsupportedError
from kscope.sass.cubin.control_codes import Control, control, without_control
from kscope.sass.encoding import forms
from kscope.sass.encoding.forms import Field, Form, Value

from . import learning
from .kernels import BRANCHING, EACH, assembled, functions, needs_tools

pytestmark = needs_tools
NEEDED = """
CS2R.32 R8, SR_CLOCKLO | CS2R R8, SR_CLOCKLO | CS2R R8, SR_GLOBALTIMERLO | S2R R9, SR_TID.X | S2R R9, SR_CTAID.Y
S2R R9, SR_LANEID | S2UR UR4, SR_CTAID.Y | MOV R3, R7 | IMAD.MOV.U32 R3, RZ, RZ, 0x1234 | MOV R3, 0xde2adb61
IADD3 R3, R4, R5, RZ | IADD3 R3, R4, 0x10, RZ | IMAD R3, R4, R5, R6 | IMAD R3, R4, 0x40, R6
IMAD.WIDE.U32 R4, R8, R9, RZ | LOP3.LUT R3, R4, 0xff0, RZ, 0xc0, !PT | LOP3.LUT R3, R4, R5, R6, 0xea, !PT
ISETP.NE.U32.AND P3, PT, R4, RZ, PT | ISETP.EQ.U32.AND P3, PT, R4, 0x7, PT | SEL R3, R4, R5, P2
SHF.R.U32.HI R3, RZ, 0x5, R4 | ULDC.64 UR60, c[0x0][0x208] | LDC R3, c[0x0][0x214]
LDG.E R4, desc[UR6][R8.64+0x10] | LDG.E.64 R4, desc[UR6][R8.64] | LDG.E.128 R4, desc[UR6][R8.64+0x20]
STG.E desc[UR60][R8.64], R4 | STG.E.64 desc[UR60][R8.64+-0x8], R4 | @!P6 STG.E.128 desc[UR60][R8.64+0x20], R12
REDG.E.ADD.STRONG.GPU desc[UR4][R8.64+0x8], R12 | ATOMG.E.ADD.STRONG.GPU PT, R5, desc[UR4][R8.64], R12
@P6 STG.E.128 [R8.U32+UR56+0x20], R12 | STG.E.128 [RZ.U32+UR56+0x10], R12 | R2UR UR56, R8 | UMOV UR56, URZ
@P0 BRA `() | NOP | EXIT
"""
"""The instructions that inserted code is made of."""


def random_value(code: str, kind: str, slot: Field, dice: random.Random) -> int:
    """A number that an operand can have; registers are multiples of four, as the widest need."""
    if kind in ("R", "UR"):
        return 4 * dice.randrange(0, 63 if kind == "R" else 15)
    if kind:
        return dice.randrange(0, 7)
    if code.startswith("IMAD.SHL"):  # nvdisasm's name of a multiplication by a power of two
        return 1 << dice.randrange(1, 20)
    return dice.randrange(0, 1 << min(slot.bits, 23)) // 4 * 4 if slot.bits > 8 else dice.randrange(1, 1 << slot.bits)


def spelled(key: str, values: tuple[Value, ...]) -> str:
    """A form's text with numbers."""
    rest = iter(values)

    def put(match: re.Match[str]) -> str:
        value, kind = next(rest), match[1]
        if not kind:
            return str(value) if isinstance(value, str) else hex(value)
        assert isinstance(value, int)
        highest = {"R": 255, "UR": 63, "P": 7, "UP": 7}[kind]
        return f"{kind}{'Z' if kind[-1] == 'R' else 'T'}" if value == highest else f"{kind}{value}"

    return re.sub(r"(UR|UP|R|P)?#|\$", put, key)


def cases(seed: int, arch: int) -> list[str]:
    """One text for each form, and a guard."""
    dice, made = random.Random(seed), list[str]()
    for key, found in forms.forms(arch).items():
        kinds = [kind for kind, _ in re.findall(r"(UR|UP|R|P)?#|(\$)", key)]
        for form in found:
            values = tuple(
                random_value(key, kind, slot, dice) if isinstance(slot, Field) else slot
                for kind, slot in zip(kinds, form.slots, strict=True)
            )
            guard = dice.choice(["", "@P3 ", "@!P0 "])
            made.append(("" if key.startswith(forms.UNIFORM) else guard) + spelled(key, values))
    return made


def normal(text: str) -> tuple[str, str, tuple[Value, ...]]:
    """A text as far as it matters: nvdisasm leaves out an offset of zero, and prints some constants negative."""
    guard, rest = re.match(r"(@!?U?P\w )?\s*(.*)", text).groups()  # type: ignore[union-attr]  # it matches any text
    code, _, operands = rest.partition(" ")
    operands = re.sub(r" 0x[0-9a-f]+$", " `", operands) if code in ("BRA", "BSSY", "BSSY.RECONVERGENT") else operands
    key, values = forms.shape(code, operands)
    if code in ("BRA", "BSSY"):
        key = re.sub(r"#?`?$", "`", key)
    return (guard or "").strip(), key, tuple(v % (1 << 32) if isinstance(v, int) else v for v in values)


@pytest.mark.parametrize(
    ("seed", "arch"),
    [
        (1, 90),
        (2, 80),
        *(pytest.param(*one, marks=pytest.mark.variation) for one in ((2, 90), (3, 90), (3, 86), (4, 89))),
    ],
)
def test_every_form_reads_back_with_random_operands(seed: int, arch: int) -> None:
    texts = [one for one in cases(seed, arch) if not re.search(r"\b(BRA|BSSY|WARPSYNC)\b", one)]
    printed = learning.printed((forms.word(one, Control(stall=5), arch) for one in texts), arch)
    assert len(texts) > 150
    assert [pair for pair in zip(texts, printed, strict=True) if normal(pair[0]) != normal(pair[1])] == []


@pytest.mark.parametrize("text", [one.strip() for line in NEEDED.strip().splitlines() for one in line.split("|")])
def test_the_instructions_of_inserted_code_were_learned(text: str) -> None:
    code = Control(stall=7, writes=2, waits=frozenset({1, 4}))
    assert control(forms.word(text, code)) == code


@pytest.mark.parametrize("tool", EACH)
def test_what_an_assembler_wrote_is_assembled_to_the_same_bits(tool: str) -> None:
    (kernel,) = functions(assembled(BRANCHING, tool))
    known = 0
    for one in kernel.instructions:
        text = f"{one.guard} {one.code} {', '.join(one.operands)}"
        try:
            made = forms.word(text, one.control)
        except UnsupportedError:
            continue
        known += 1
        assert one.target is not None or made == one.word, text
    assert known > len(kernel.instructions) / 2


@pytest.mark.parametrize(
    "text", ["FFMA R1, R2, R3, R4", "CS2R.32 R4, SR_CLOCKHI", "STG.E.128 [R8.64], R4", "MOV R3, c[0x0][0x20]"]
)
def test_what_was_not_learned_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedError, match="no form"):
        forms.word(text)


def test_guards_of_uniform_instructions_are_other_registers_and_refused() -> None:
    with pytest.raises(UnsupportedError, match="uniform"):
        forms.word("@P0 ULDC.64 UR60, c[0x0][0x208]")


@pytest.mark.parametrize("text", ["STG.E.128 desc[UR4][R8.64+0x1000000], R12", "IADD3 R3, R4, 0x100000000, RZ"])
def test_numbers_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedError, match="does not fit"):
        forms.word(text)


def test_a_register_elsewhere_in_the_examples_is_not_learned() -> None:
    (kernel,) = functions(assembled(BRANCHING))
    one = next(one for one in kernel.instructions if one.name == "S2R" and not one.conditional)
    _, values = forms.shape(one.code, ", ".join(one.operands))
    other = learning.learned([one, one])
    ((key, (form,)),) = other.items()
    assert form == Form(without_control(one.word) & ~(0xF << 12), values), key  # one example teaches no field


@pytest.mark.slow
@pytest.mark.parametrize("tool", EACH)
def test_no_instruction_of_an_assembler_contradicts_a_form(tool: str) -> None:
    """The texts that the forms were learned from, by every assembler at hand."""
    known = unknown = 0
    for one in (one for text in learning.texts() for one in learning.examples(assembled(text, tool))):
        try:
            made = forms.word(f"{one.guard} {one.code} {', '.join(one.operands)}", one.control)
        except UnsupportedError:
            unknown += 1
            continue
        known += 1
        assert one.target is not None or made == one.word, one
    assert known > 9 * unknown
