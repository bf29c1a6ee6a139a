"""Operands as nvdisasm prints them, and the registers of a lane."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
_CONSTANT = re.compile(r"c\[(0x[0-9a-f]+)\]\[(RZ|0x[0-9a-f]+)\]")
_NUMBER = re.compile(r"-?0x[0-9a-f]+")
_ZEROS, _TRUE = ("RZ", "URZ", "SRZ"), ("PT", "UPT")


@dataclass(eq=False)
class Registers:
    """The reads and writes of an instruction.

    Attributes:
        lane: registers and predicates of the lane, by name.
        warp: those of its warp.
        constant: a word of a constant bank, by bank and offset.
    """

    lane: dict[str, int]
    warp: dict[str, int]
    constant: Callable[[int, int], int]
    garbage: int = 0x5A5A5A5A

    def get(self, name: str) -> int:
        """A register, or a predicate."""
        if name in _ZEROS:
            return 0
        if name in _TRUE:
            return 1
        return (self.warp if name[0] == "U" else self.lane).get(name, self.garbage if "P" not in name else 0)

    def put(self, name: str, value: int) -> None:
        if name not in (*_ZEROS, *_TRUE):
            (self.warp if name[0] == "U" else self.lane)[name] = value & M32 if "P" not in name else value & 1

    def value(self, text: str) -> int:
        """An operand of 32 bits. -x is 2^32 - x, so that a sum with it carries as the adder does."""
        text = text.removesuffix(".reuse")
        if text[0] == "-" and not _NUMBER.fullmatch(text):
            return (M32 ^ self.value(text[1:])) + 1
        if text[0] == "~":
            return M32 ^ self.value(text[1:])
        if text[0] == "!":
            return 1 - self.value(text[1:])
        if _NUMBER.fullmatch(text):
            return int(text, 16) & M32
        if found := _CONSTANT.fullmatch(text):
            return self.constant(int(found[1], 16), 0 if found[2] == "RZ" else int(found[2], 16))
        return self.get(text)

    def wide(self, text: str) -> int:
        """An operand of 64 bits: a register and the next one."""
        text = text.removesuffix(".reuse").removesuffix(".64")
        if found := _CONSTANT.fullmatch(text):
            bank, at = int(found[1], 16), 0 if found[2] == "RZ" else int(found[2], 16)
            return self.constant(bank, at) | self.constant(bank, at + 4) << 32
        return self.get(text) | self.get(following(text)) << 32

    def put_many(self, name: str, value: int, words: int) -> None:
        """Write a register and those after it."""
        for number in range(words):
            self.put(following(name, number), value >> 32 * number)

    def holds(self, guard: str) -> bool:
        return not guard or bool(self.value(guard[1:]))


def following(name: str, number: int = 1) -> str:
    """The register after one."""
    if name in _ZEROS:
        return name
    kind, at = re.fullmatch(r"(\D+)(\d+)", name).groups()  # type: ignore[union-attr]  # every name fits
    return f"{kind}{int(at) + number}"
