"""Results of instructions in one lane; those of the uniform datapath have the same names with the prefix U."""

from __future__ import annotations

from collections.abc import Callable
from operator import and_, eq, ge, gt, le, lt, ne, or_, xor

from kscope.sass.cubin.instructions import Instruction

from .values import M32, Registers

_COMPARED: dict[str, Callable[[int, int], bool]] = {"EQ": eq, "NE": ne, "LT": lt, "LE": le, "GT": gt, "GE": ge}
_COMBINED: dict[str, Callable[[bool, bool], bool]] = {"AND": and_, "OR": or_, "XOR": xor}
UNMODELED = frozenset(
    {"FADD", "FFMA", "FMUL", "FMNMX", "HADD2", "HFMA2", "F2FP", "MUFU", "FSETP", "I2F", "F2I", "LDS", "BAR", "STS"}
)
"""The kernel's own: their results are 0."""


def signed(value: int) -> int:
    return (value & M32) - ((value & M32) >> 31 << 32)


def compute(one: Instruction, registers: Registers) -> bool:
    """Run an instruction that needs neither memory nor other lanes; False for others."""
    known = _TABLE.get(one.name.removeprefix("U"))
    if known is None:
        return False
    known(one, registers)
    return True


def _move(one: Instruction, registers: Registers) -> None:
    registers.put(one.operands[0], registers.value(one.operands[1]))


def _imad(one: Instruction, registers: Registers) -> None:
    result, a, b, c, *carry = one.operands
    x, y = (registers.value(text) & M32 for text in (a, b))
    parts = one.code.split(".")
    if "WIDE" in parts:
        if "U32" not in parts:
            x, y = signed(x), signed(y)
        registers.put_many(result, x * y + registers.wide(c), 2)
    elif "HI" in parts:
        if "U32" not in parts:
            x, y = signed(x), signed(y)
        registers.put(result, (x * y >> 32) + registers.value(c))
    else:
        registers.put(result, x * y + registers.value(c) + sum(registers.value(text) for text in carry))


def _add(one: Instruction, registers: Registers) -> None:
    result, *rest = one.operands
    carries = []
    while rest[0].startswith(("P", "UP")):
        carries.append(rest.pop(0))
    added = sum(registers.value(text) for text in rest)  # predicates after the numbers are carries in
    registers.put(result, added)
    for number, carry in enumerate(carries):
        registers.put(carry, (added >> 32) > number)


def _compare(one: Instruction, registers: Registers) -> None:
    result, other, a, b, combined, *low = one.operands
    parts = one.code.split(".")
    x, y = (registers.value(text) & M32 for text in (a, b))
    if "U32" not in parts:
        x, y = signed(x), signed(y)
    found = _COMPARED[parts[1]](x, y)
    if "EX" in parts:
        (less,) = (bool(registers.value(text)) for text in low)
        found = less if x == y else _COMPARED[parts[1]](x, y)
    base = bool(registers.value(combined))
    combine = next(combine for name, combine in _COMBINED.items() if name in parts)
    registers.put(result, combine(found, base))
    registers.put(other, combine(not found, base))


def _select(one: Instruction, registers: Registers) -> None:
    result, a, b, which = one.operands
    registers.put(result, registers.value(a if registers.value(which) else b))


def _table(table: int, *values: int) -> int:
    a, b, c = values
    return sum((table >> (a >> n & 1) * 4 + (b >> n & 1) * 2 + (c >> n & 1) & 1) << n for n in range(32))


def _logic(one: Instruction, registers: Registers) -> None:
    predicate = [one.operands[0]] if one.operands[0].startswith(("P", "UP")) else []
    result, a, b, c, table, *_ = one.operands[len(predicate) :]
    found = _table(int(table, 16), *(registers.value(text) & M32 for text in (a, b, c)))
    registers.put(result, found)
    for name in predicate:
        registers.put(name, found != 0)


def _predicates(one: Instruction, registers: Registers) -> None:
    first, second, a, b, c, *tables = one.operands
    values = [registers.value(text) for text in (a, b, c)]
    for name, table in zip((first, second), tables, strict=True):
        registers.put(name, _table(int(table, 16), *values) & 1)


def _permute(one: Instruction, registers: Registers) -> None:
    result, a, selector, b = one.operands
    data = registers.value(a) & M32 | (registers.value(b) & M32) << 32
    chosen = registers.value(selector)
    registers.put(result, sum((data >> 8 * (chosen >> 4 * n & 7) & 0xFF) << 8 * n for n in range(4)))


def _shift(one: Instruction, registers: Registers) -> None:
    result, low, by, high = one.operands
    parts = one.code.split(".")
    data = registers.value(low) & M32 | (registers.value(high) & M32) << 32
    count = registers.value(by) & M32
    count = count & 31 if "W" in parts else min(count, 63 if "U64" in parts else 32)
    found = data >> count if "R" in parts else data << count
    registers.put(result, found >> 32 if "HI" in parts else found)


def _lea(one: Instruction, registers: Registers) -> None:
    result, *rest = one.operands
    carry = [rest.pop(0)] if rest[0].startswith(("P", "UP")) else []
    if "HI" in one.code.split("."):
        a, b, high, by, *come = rest
        shifted = (registers.value(a) & M32 | (registers.value(high) & M32) << 32) << int(by, 16) >> 32 & M32
    else:
        a, b, by, *come = rest
        shifted = registers.value(a) << int(by, 16) & M32
    found = shifted + registers.value(b) + sum(registers.value(text) for text in come)
    registers.put(result, found)
    for name in carry:
        registers.put(name, found >> 32)


def _least(one: Instruction, registers: Registers) -> None:
    result, *numbers, least = one.operands
    values = [registers.value(text) & M32 for text in numbers]
    if one.name.endswith("ADDMNMX"):
        values = [values[0] + values[1] & M32, values[2]]
    if "U32" not in one.code.split("."):
        values = [signed(value) for value in values]
    registers.put(result, min(values) if registers.value(least) else max(values))


def _bits(one: Instruction, registers: Registers) -> None:
    registers.put(one.operands[0], (registers.value(one.operands[1]) & M32).bit_count())


def _leading(one: Instruction, registers: Registers) -> None:
    registers.put(one.operands[0], (registers.value(one.operands[1]) & M32).bit_length() - 1)


def _packed(one: Instruction, registers: Registers) -> None:
    mask = int(one.operands[3], 16)
    registers.put(one.operands[0], sum(registers.get(f"P{n}") << n for n in range(7) if mask >> n & 1))


def _unpacked(one: Instruction, registers: Registers) -> None:
    byte = next((int(part[1:]) for part in one.code.split(".") if part[0] == "B"), 0)
    value, mask = registers.value(one.operands[1]) >> 8 * byte, int(one.operands[2], 16)
    for n in range(7):
        if mask >> n & 1:
            registers.put(f"P{n}", value >> n & 1)


def _constant(one: Instruction, registers: Registers) -> None:
    if ".64" in one.code:
        registers.put_many(one.operands[0], registers.wide(one.operands[1]), 2)
    else:
        registers.put(one.operands[0], registers.value(one.operands[1]))


def _nothing(one: Instruction, registers: Registers) -> None:
    pass


_TABLE: dict[str, Callable[[Instruction, Registers], None]] = {
    "MOV": _move, "IMAD": _imad, "IADD3": _add, "VIADD": _add, "ISETP": _compare, "SEL": _select, "LOP3": _logic,
    "PLOP3": _predicates, "PRMT": _permute, "SHF": _shift, "LEA": _lea, "VIMNMX": _least, "VIADDMNMX": _least,
    "IMNMX": _least, "POPC": _bits, "FLO": _leading, "P2R": _packed, "R2P": _unpacked, "LDC": _constant,
    "LDCU": _constant, "NOP": _nothing,
}  # fmt: skip
