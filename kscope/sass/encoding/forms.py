"""Encodes instructions from text, by forms that were learned from ptxas; unknown forms are refused.
tests/unit/sass/learning.py learned them: `forms_sm90.json` those of sm_90, `forms_sm80.json` those of sm_80, sm_86 and
sm_89.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...errors import UnsupportedError
from ..cubin.control_codes import Control, controlled

Value = int | str
_SLOT = re.compile(r"(?<![\w.])(UR|UP|R|P)(\d+|Z|T)(?!\w)|(-?0x[0-9a-f]+)|(?<!\w)(SR_[\w.]+|SRZ)")
_NO_OFFSET = re.compile(r"\[(U?R(?:\d+|Z)(?:\.64|\.U32|\.X\d+)?)\]")
_NAMED = re.compile(r"`\([^)]*\)")
_TEXT = re.compile(r"^(?:@(!?)P(\d|T)\s+)?([A-Z][\w.]*)\s*(.*)$")
_GUARD_AT, _ALWAYS = 12, 7
UNIFORM = ("U", "S2UR")
"""Prefix of the text of instructions whose guard is a uniform predicate; these are used without one."""
_FILES = {80: "forms_sm80", 86: "forms_sm80", 89: "forms_sm80", 90: "forms_sm90"}
"""Files with the forms of an architecture."""
_RAN = {
    "forms_sm90": {
        "STG.E.128 [R#.U32+UR#+#], R#": [["0000000008100d000000000000000986", [[24, 8], [64, 6], [40, 24], [32, 8]]]],
    }
}
"""Forms that only the assembler of sm_75 writes: nvdisasm reads them, and they ran on an H100."""
_SAME = "forms_sm90"
"""Replaces forms that are the same there."""
_HIGHEST = {"R": 255, "UR": 63, "P": 7, "UP": 7}
"""Numbers of the registers that read as zero or true: RZ, URZ, PT, UPT."""


@dataclass(frozen=True)
class Field:
    """The bits of an operand's number: lowest bit, number of bits, and unit."""

    at: int
    bits: int
    unit: int = 1

    def put(self, word: int, value: int) -> int:
        """The word with the value in this field.

        Raises:
            UnsupportedError: the value has more bits.
        """
        number, rest = divmod(value, self.unit)
        if rest or not -(1 << self.bits - 1) <= number < 1 << self.bits:
            raise UnsupportedError(f"{value:#x} does not fit into {self.bits} bits of an instruction")
        mask = (1 << self.bits) - 1
        return word & ~(mask << self.at) | (number & mask) << self.at

    def get(self, word: int) -> int:
        """The value in this field, unsigned."""
        return (word >> self.at & (1 << self.bits) - 1) * self.unit


@dataclass(frozen=True)
class Form:
    """A form of instructions: their common bits, and for each number a field, or its only known value.

    Its text is that of an instruction with placeholders for registers and constants. A test proves every form with
    random operands and nvdisasm.
    """

    base: int
    slots: tuple[Field | Value, ...]

    def fits(self, values: tuple[Value, ...]) -> bool:
        """True if the form has these numbers."""
        return len(values) == len(self.slots) and all(
            isinstance(slot, Field) or slot == value for slot, value in zip(self.slots, values, strict=True)
        )


def shape(code: str, operands: str) -> tuple[str, tuple[Value, ...]]:
    """The text of an instruction with placeholders, and the numbers that they replace.

    Args:
        code: opcode and modifiers.
        operands: its operands, as nvdisasm prints them.

    Returns:
        Such as ("STG.E desc[UR#][R#.64+#], R#", (4, 2, 0, 11)).
    """
    values = list[Value]()

    def kept(match: re.Match[str]) -> str:
        file, register, number, special = match.groups()
        if special:
            values.append(special)
            return "$"
        if number:
            values.append(int(number, 16))
            return "#"
        values.append(int(register) if register.isdigit() else _HIGHEST[file])
        return f"{file}#"

    text = _NO_OFFSET.sub(r"[\1+0x0]", _NAMED.sub("`", operands.replace(".reuse", "")))
    key = _SLOT.sub(kept, text)  # fills values
    return f"{code} {key}".strip(), tuple(values)


def word(text: str, code: Control | None = None, arch: int = 90) -> int:
    """Assemble an instruction.

    Args:
        text: as nvdisasm prints it, such as "@!P6 STG.E.128 desc[UR4][R8.64+0x20], R12". A branch's target is written
            as "`()"; `New.to` sets it.
        code: its control code.
        arch: the architecture.

    Returns:
        Its 128 bits.

    Raises:
        UnsupportedError: the form was not learned.
    """
    match = _TEXT.match(text.strip().rstrip(";").strip())
    if match is None:
        raise ValueError(f"not an instruction: {text}")
    negated, guard, name, operands = match.groups()
    if guard is not None and name.startswith(UNIFORM):
        raise UnsupportedError(f"{text.strip()!r}: the guard of a uniform instruction is a uniform predicate")
    key, values = shape(name, operands)
    form = next((one for one in forms(arch).get(key, ()) if one.fits(values)), None)
    if form is None:
        raise UnsupportedError(f"kscope has learned no form of {text.strip()!r} ({key}) for sm_{arch}")
    made = form.base
    for slot, value in zip(form.slots, values, strict=True):
        if isinstance(slot, Field):
            assert isinstance(value, int)
            made = slot.put(made, value)
    number = _ALWAYS if guard in (None, "T") else int(guard)
    made |= (number | bool(negated) << 3) << _GUARD_AT
    return controlled(made, code or Control())


def has_forms(arch: int) -> bool:
    """True if the forms of an architecture were learned."""
    return arch in _FILES


def forms(arch: int) -> Mapping[str, tuple[Form, ...]]:
    """The learned forms of an architecture, by their text; none for an unknown one."""
    return _forms(_FILES[arch]) if arch in _FILES else {}


@cache
def _forms(file: str) -> dict[str, tuple[Form, ...]]:
    table = json.loads((Path(__file__).parent / f"{file}.json").read_text(encoding="utf-8")) | _RAN.get(file, {})
    return {key: _forms(rows)[key] if rows == _SAME else tuple(_read(rows)) for key, rows in table.items()}


def _read(rows: list[tuple[str, list[Value | list[int]]]]) -> Iterator[Form]:
    for base, slots in rows:
        yield Form(int(base, 16), tuple(Field(*slot) if isinstance(slot, list) else slot for slot in slots))
