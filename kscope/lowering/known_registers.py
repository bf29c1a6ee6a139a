"""What registers of a kernel are known to hold: constants, and predicates made of elections and other predicates."""

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
ONE_LANE = "elect"
"""Part of a condition that holds for one lane of a warp."""


@dataclass
class Registers:
    """The registers of a kernel."""

    function: cfg.Function

    @cached_property
    def _writes(self) -> Counter[str]:
        """How many statements write each register."""
        writes = Counter[str]()
        for one in self.function.statements:
            if one.sort in ("other", "access", "wait", "call"):
                first = _FIRST.match(self.function.text, one.start, one.end)
                writes.update(_REGISTER.findall(first[1]) if first else ())
        return writes

    @cached_property
    def _predicates(self) -> dict[str, frozenset[str]]:
        """Predicates that one statement writes as a conjunction or as an election -> what they are made of."""
        made: dict[str, frozenset[str]] = {}
        for one in self.function.statements:
            if one.sort != "other" or one.predicate:
                continue
            text = self.function.text[one.start : one.end]
            if (elected := _ELECTED.match(text)) is not None and self._writes[elected[1]] == 1:
                made[elected[1]] = frozenset({ONE_LANE})
            elif (both := _AND.match(text)) is not None and self._writes[both[1]] == 1:
                made[both[1]] = frozenset({both[2], both[3]})
        return made

    def condition(self, when: str | None) -> frozenset[str] | None:
        """What a predicate is made of: equal sets hold for equally many lanes; None for no predicate."""
        if when is None:
            return None
        found, known = {when}, self._predicates
        while more := {one for one in found if one in known}:
            found = (found - more).union(*(known[one] for one in more))
        return frozenset(found)

    def is_fixed(self, operand: str) -> bool:
        """Whether the registers of an operand have one value in the whole kernel, or at least in a basic block."""
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
        """The number that an operand is, if the code shows it."""
        if re.fullmatch(r"0[xX][\da-fA-F]+|\d+", operand):
            return int(operand, 0)
        return self.constants.get(operand)
