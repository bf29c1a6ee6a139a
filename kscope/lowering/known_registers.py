"""Known contents of a kernel's registers: constants, and predicates computed from elections, other predicates and
comparisons of the thread's number.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from ..ptx import cfg

_FIRST = re.compile(r"(?:@!?\s*[%\w$]+\s+)?[\w.:]+\s+(\{[^}]*\}|[^,\[;]+)")
_MOVED = re.compile(r"mov\.[bsu](?:32|64)\s+(%\w+),\s*(\d+);")
_REGISTER = re.compile(r"%\w+")
_ELECTED = re.compile(r"elect\.sync\s+[%\w]+\s*\|\s*(%\w+)\s*,\s*(?:-1|0[xX][fF]{8}|4294967295)\s*;")
_AND = re.compile(r"and\.pred\s+(%\w+),\s*(%\w+),\s*(%\w+)\s*;")
_THREAD = re.compile(r"mov\.[bsu]32\s+(%\w+),\s*(%tid\.x|%laneid)\s*;")
_MASKED = re.compile(r"and\.b32\s+(%\w+),\s*(%\w+),\s*(\d+)\s*;")
_BELOW = re.compile(r"setp\.(eq\.[bsu]|lt\.u)32\s+(%\w+),\s*(%\w+),\s*(0|32)\s*;")
_LANES, _THREADS = 31, 1023
"""Masks of a lane's number, and of a thread's in its block."""
ONE_LANE = "elect"
"""Part of a condition that holds for one lane of a warp."""
_LANE_0 = "lane 0"
"""Part of one that holds for lane 0."""


@dataclass
class Registers:
    """The registers of a kernel."""

    function: cfg.Function

    @cached_property
    def _writes(self) -> Counter[str]:
        """Number of statements that write each register."""
        writes = Counter[str]()
        for one in self.function.statements:
            if one.sort in ("other", "access", "wait", "call"):
                first = _FIRST.match(self.function.text, one.start, one.end)
                writes.update(_REGISTER.findall(first[1]) if first else ())
        return writes

    @cached_property
    def _threads(self) -> dict[str, int]:
        """Registers with bits of the thread's number in its block, and the mask of these bits; the low ones are the
        lane's.
        """
        masks: dict[str, int] = {}
        for text in self._unconditional:
            if (read := _THREAD.match(text)) is not None and (read[2] == "%laneid" or self.function.has_flat_blocks):
                masks[read[1]] = _LANES if read[2] == "%laneid" else _THREADS
            elif (part := _MASKED.match(text)) is not None and part[2] in masks:
                masks[part[1]] = masks[part[2]] & int(part[3])
        return {register: mask for register, mask in masks.items() if self._writes[register] == 1}

    @cached_property
    def _unconditional(self) -> list[str]:
        """Statements that every thread that gets there executes, and that only write registers."""
        text = self.function.text
        return [
            text[one.start : one.end] for one in self.function.statements if one.sort == "other" and not one.predicate
        ]

    def _compared(self, text: str) -> tuple[str, frozenset[str]] | None:
        """A predicate that compares the thread's number, and the conditions that it implies."""
        below = _BELOW.match(text)
        if below is None or below[3] not in self._threads or self._writes[below[2]] != 1:
            return None
        mask, least = self._threads[below[3]], below[1] == "lt.u"
        if least != (below[4] == "32") or (not least and mask & _LANES != _LANES):
            return None
        warps = {f"thread & {mask & ~_LANES} = 0"} if mask > _LANES else set[str]()
        return below[2], frozenset(warps if least else {ONE_LANE, _LANE_0, *warps})

    @cached_property
    def _predicates(self) -> dict[str, frozenset[str]]:
        """Predicates that one statement writes as a conjunction, an election or a comparison -> the parts of their
        conditions.
        """
        made: dict[str, frozenset[str]] = {}
        for text in self._unconditional:
            if (elected := _ELECTED.match(text)) is not None and self._writes[elected[1]] == 1:
                made[elected[1]] = frozenset({ONE_LANE})
            elif (both := _AND.match(text)) is not None and self._writes[both[1]] == 1:
                made[both[1]] = frozenset({both[2], both[3]})
            elif (compared := self._compared(text)) is not None:
                made[compared[0]] = compared[1]
        return made

    def condition(self, when: str | None) -> frozenset[str] | None:
        """The parts of a predicate's condition: equal sets hold for equally many lanes; None for no predicate."""
        return None if when is None else self._parts(when) - {_LANE_0}

    def is_lane_0(self, when: str | None) -> bool:
        """True if a predicate holds for lane 0 of a warp at most."""
        return when is not None and _LANE_0 in self._parts(when)

    def _parts(self, when: str) -> frozenset[str]:
        found, known = {when}, self._predicates
        while more := {one for one in found if one in known}:
            found = (found - more).union(*(known[one] for one in more))
        return frozenset(found)

    def is_fixed(self, operand: str) -> bool:
        """True if the registers of an operand have one value in the whole kernel, or at least in a basic block."""
        return all(self._writes[register] <= 1 for register in _REGISTER.findall(operand))

    @cached_property
    def constants(self) -> dict[str, int]:
        """Registers that only one statement writes, with a number."""
        numbers: dict[str, int] = {}
        for one in self.function.statements:
            if one.sort == "other" and not one.predicate:
                moved = _MOVED.match(self.function.text, one.start, one.end)
                numbers |= {moved[1]: int(moved[2])} if moved else {}
        return {register: number for register, number in numbers.items() if self._writes[register] == 1}

    def number(self, operand: str) -> int | None:
        """The value of an operand, if the code shows it."""
        if re.fullmatch(r"0[xX][\da-fA-F]+|\d+", operand):
            return int(operand, 0)
        return self.constants.get(operand)
