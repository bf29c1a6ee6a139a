"""Checks what is stored for rows with short clocks: the code before is executed with drawn clocks, barriers and lanes.
Independent of the code that wrote it: each time, the row is stored and means both records, or both are stored, or none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from ...capture import clock_rows, wire
from ...capture.model import RowLayout
from ..cubin.insertion import Word
from ..cubin.instructions import BYTES, Function, Instruction
from .hazards import CONTROL_FLOW, Hazard

_M32 = (1 << 32) - 1
_STORE = "STG.E.128"
_DRAWN = 128
"""Times that the code of a row is executed."""
_OTHERS, _SLOT = ("P2R", "NOP", "BRA"), 16


@dataclass
class _Lane:
    """A lane with its registers and predicates; those that the code does not write are drawn."""

    draw: Random
    known: dict[str, int] = field(default_factory=dict[str, int])

    def value(self, text: str) -> int:
        """An operand's value."""
        if text[0] in "-!":
            return -self.value(text[1:]) & _M32 if text[0] == "-" else 1 - self.value(text[1:])
        if text in ("RZ", "URZ"):
            return 0
        if text in ("PT", "UPT"):
            return 1
        if text[:2] == "UR":  # the offset of a ring's last place
            return self.known.get(text, 0xFF0)
        if text[0].isdigit():
            return int(text, 16)
        drawn = self.draw.randrange(2)  # a register is 0 in lanes that do not record
        drawn *= 1 if "P" in text else self.draw.randrange(1 << 12) * _SLOT
        return self.known.setdefault(text, drawn)

    def run(self, one: Instruction) -> None:
        """Execute an instruction without a store. Raises KeyError for one that is not known."""
        values = [self.value(text.removesuffix(".reuse")) for text in one.operands[1:]]
        if not one.guard or self.value(one.guard[1:]):
            self.known[one.operands[0]] = _KNOWN[one.code](values)


def _table(values: list[int]) -> int:
    first, second, third, table = values[:4]
    return sum((table >> ((first >> n & 1) << 2 | (second >> n & 1) << 1 | third >> n & 1) & 1) << n for n in range(32))


def _permuted(values: list[int]) -> int:
    first, chosen, second = values
    both = second << 32 | first
    return sum((both >> 8 * (chosen >> 4 * n & 7) & 0xFF) << 8 * n for n in range(4))


_KNOWN: dict[str, Callable[[list[int]], int]] = {
    "IADD3": lambda some: sum(some) & _M32,
    "VIADD": lambda some: sum(some) & _M32,
    "UIADD3": lambda some: sum(some) & _M32,
    "IMAD.IADD": lambda some: some[0] * some[1] + some[2] & _M32,
    "IMAD.MOV.U32": lambda some: some[0] * some[1] + some[2] & _M32,
    "IMAD.U32": lambda some: some[0] * some[1] + some[2] & _M32,
    "MOV": lambda some: some[0],
    "LOP3.LUT": _table,
    "PRMT": _permuted,
    "SHF.R.U32.HI": lambda some: some[2] >> some[1],
    "SHF.R.W.U32": lambda some: (some[2] << 32 | some[0]) >> (some[1] & 31) & _M32,
    "ISETP.EQ.U32.AND": lambda some: int(some[1] == some[2]) & some[3],
    "ISETP.NE.U32.AND": lambda some: int(some[1] != some[2]) & some[3],
    "PLOP3.LUT": lambda some: some[4] >> (some[1] << 2 | some[2] << 1 | some[3]) & 1,
}


def check(function: Function, new: Collection[int], words: Mapping[int, Word]) -> tuple[Hazard, ...]:
    """Find rows that do not mean their records, and records that are stored twice or not at all.

    Args:
        function: the code with what was inserted.
        new: addresses of the inserted instructions.
        words: address of each recording instruction -> the word that it writes.
    """
    by_address, found = {one.at: one for one in function.instructions}, list[Hazard]()
    for at, word in words.items():
        if word.row is not None and by_address[at].code == _STORE:
            code = list(_around(function, by_address, new, at))
            found += _wrong(code, by_address[at], word, words, _constants(by_address, words))
    return tuple(found)


def _constants(by_address: Mapping[int, Instruction], words: Mapping[int, Word]) -> dict[str, list[int]]:
    """The constants that recording instructions write to registers to which they write nothing else, such as ids."""
    found, others = defaultdict[str, list[int]](list), set[str]()
    for at in sorted(words, key=lambda at: words[at].kind == "always"):  # marks may write another value in its place
        one = by_address[at]
        if one.code == "IMAD.MOV.U32" and one.operands[1:3] == ("RZ", "RZ"):
            if words[at].kind != "always" or not found[one.operands[0]]:
                found[one.operands[0]].append(int(one.operands[3], 16) & _M32)
        else:
            others |= one.writes
    return {name: some for name, some in found.items() if name not in others}


def _around(
    function: Function, by_address: Mapping[int, Instruction], new: Collection[int], at: int
) -> Iterator[Instruction]:
    """The inserted instructions around a store, which run one after the other."""
    first, last = at, at
    while first not in function.targets and first - BYTES in new and by_address[first - BYTES].name not in CONTROL_FLOW:
        first -= BYTES
    while last + BYTES in new and last + BYTES not in function.targets and by_address[last].name not in CONTROL_FLOW:
        last += BYTES
    return (by_address[place] for place in range(first, last + BYTES, BYTES))


def _wrong(
    code: list[Instruction],
    store: Instruction,
    word: Word,
    words: Mapping[int, Word],
    constants: Mapping[str, list[int]],
) -> Iterator[Hazard]:
    what, draw, seen = f"row {word.record[0]!r}", Random(0), set[tuple[bool, ...]]()
    parts = [one for key in word.parts for one in code if one.code == _STORE and words[one.at].record == key]
    if word.row is None or len(parts) != len(word.parts):
        yield Hazard(store.at, store.at, f"{what} is not stored beside its records")
        return
    stores = [store, *parts]
    for _ in range(_DRAWN):
        lane, kept = _drawn(draw, parts, constants, word.row), dict[int, tuple[bool, int, list[int]]]()
        for one in code:
            if one in stores:
                first = int(one.operands[1][1:])
                stored = not one.guard or bool(lane.value(one.guard[1:]))
                place = lane.value(one.operands[0][1:].partition(".")[0])
                kept[one.at] = stored, place, [lane.value(f"R{first + n}") for n in range(4)]
            elif one.code in _KNOWN:
                lane.run(one)
            elif one.code != _STORE and one.name not in _OTHERS:
                yield Hazard(one.at, store.at, f"{what}: {one.code} is not known")
                return
        (whole, place, row), *each = (kept[one.at] for one in stores)
        records = [tuple(some) for _, _, some in each]
        if whole and (row[1] != word.row.row_id or clock_rows.read(row, word.row) != records):
            yield Hazard(store.at, store.at, f"{what} does not mean its records")
            return
        places = {at for stored, at, _ in each if stored}
        if len({stored for stored, _, _ in each}) > 1 or (each[0][0] and (whole or len(places) != len(each))):
            yield Hazard(store.at, store.at, f"{what} and its records are not stored in turn")
            return
        seen.add((whole, each[0][0]))
    if seen != {(True, False), (False, True), (False, False)}:
        yield Hazard(store.at, store.at, f"{what} or its records are never stored")


def _drawn(draw: Random, parts: list[Instruction], constants: Mapping[str, list[int]], row: RowLayout) -> _Lane:
    """A lane whose records have clocks that are close, or not, and a barrier, or another value."""
    lane, clock = _Lane(draw), draw.randrange(1 << 32)
    far, most = draw.randrange(4), (1 << wire.SHORT_BITS) - 1
    for one, (constant, _) in zip(parts, row.values, strict=True):
        first = int(one.operands[1][1:])
        for word in (0, 2):
            lane.known[f"R{first + word}"] = clock
            clock = clock + draw.choice([0, 1, most, draw.randrange(most)]) & _M32
            if not far and not draw.randrange(3):
                clock = clock + draw.choice([1 << wire.SHORT_BITS, draw.randrange(1 << 32)]) & _M32
        lane.known[f"R{first + 3}"] = constant + (draw.randrange(1 << 10) << wire.SHORT_SHIFT)
        if not draw.randrange(3):
            lane.known[f"R{first + 3}"] = draw.choice([draw.randrange(1 << 32), constant + draw.randrange(1 << 8)])
        for name in (f"R{first + 1}", f"R{first + 3}"):
            if name in constants:
                lane.known[name] = draw.choice(constants[name])
    return lane
