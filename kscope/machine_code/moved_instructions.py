"""Whether a region has the instructions of its source lines: which foreign ones it has, and which it lacks.

One function for both witnesses: with samples as weights (kscope crosscheck), and with the machine code alone, where an
instruction that works counts 1 and one that only computes addresses or jumps counts 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..capture.samples import CodeRegion, Place, SampledFunction
from ..util.text import some
from .disassembly import is_empty

Weights = npt.NDArray[np.float64]
Placement = Literal["pure", "moved", "empty", "unknown"]

HEADER = "kscope.cuh"
"""Marks of CUDA C++ are its code: their own lines, and no user's."""
MOST_MOVED = 0.2
"""Share of a region's working instructions that may belong to other lines, or be outside."""
_MOST_NAMED = 5
_WORKING = (
    "LD", "ST", "ATOM", "RED", "UTMA", "UBLK", "HMMA", "HGMMA", "IMMA", "IGMMA", "QMMA", "QGMMA", "DMMA", "UTC", "MUFU",
    "FADD", "FMUL", "FFMA", "HADD2", "HMUL2", "HFMA2", "DADD", "DMUL", "DFMA", "SYNCS", "BAR", "SHFL", "REDUX",
)  # fmt: skip
"""Beginnings of opcodes whose place matters."""
_CONSTANTS = ("LDC", "LDGDEPBAR", "LDL", "STL")
"""Of these, not: constants, groups of copies, and spilled registers."""


@dataclass(frozen=True)
class PlacedRegion:
    """A region in machine code.

    Attributes:
        region: its name.
        inside: its working instructions, without those of nested regions.
        foreign: instructions inside that belong to other lines, as text.
        missing: instructions of its lines that are outside.
        moved_in: share of `inside` that is foreign; NaN without source lines or instructions.
        moved_out: share of its lines' instructions that is missing; likewise.
        verdict: "pure"; "moved": more than MOST_MOVED is foreign or missing; "empty": nothing is between its clock
            readings; "unknown": they were not found, or its lines are unknown.
    """

    region: str
    inside: int
    foreign: tuple[str, ...]
    missing: tuple[str, ...]
    moved_in: float
    moved_out: float
    verdict: Placement


def placed_regions(function: SampledFunction, plain: SampledFunction | None = None) -> tuple[PlacedRegion, ...]:
    """Each region of a function, by its machine code alone.

    Args:
        function: with its code.
        plain: the function without marks: what its lines do not have is kscope's own. None if it is unknown.
    """
    own = None if plain is None else {_kind(plain, one) for one in range(len(plain.at))}
    weights = [
        float(_works(text) and (own is None or _kind(function, one) in own)) for one, text in enumerate(function.text)
    ]
    code = WeighedCode(function, np.array(weights, np.float64))
    return tuple(_placed(code, name) for name in dict.fromkeys(one.name for one in function.regions))


def findings(regions: Iterable[PlacedRegion]) -> Iterator[str]:
    """A sentence for each region that is empty or moved."""
    for one in regions:
        if one.verdict == "empty":
            yield f"region {one.region}: no instruction is between its clock readings"
        if one.verdict == "moved" and one.moved_in > MOST_MOVED:
            part = f"{one.moved_in:.0%} of its {one.inside} working instructions"
            yield f"region {one.region}: {part} are of other lines: {some(one.foreign, _MOST_NAMED)}"
        if one.verdict == "moved" and one.moved_out > MOST_MOVED:
            part = f"{one.moved_out:.0%} of its lines' working instructions"
            yield f"region {one.region}: {part} are outside of it: {some(one.missing, _MOST_NAMED)}"


def _kind(function: SampledFunction, instruction: int) -> tuple[Place | None, str]:
    """The line of an instruction, and its opcode."""
    return user_place(function, instruction), _opcode(function.text[instruction])


def _opcode(text: str) -> str:
    return next((word for word in text.split() if not word.startswith("@")), "")


def _works(text: str) -> bool:
    code = _opcode(text)
    nothing = text.startswith("@!PT ") or "-RZ, RZ" in text
    return code.startswith(_WORKING) and not code.startswith(_CONSTANTS) and not nothing


def _placed(code: WeighedCode, region: str) -> PlacedRegion:
    inside, lines = code.inside(region), code.lines(region)
    if not code.has(region) or lines is None:
        return PlacedRegion(region, 0, (), (), float("nan"), float("nan"), "unknown")
    foreign, missing = code.foreign(region), code.missing(region)
    moved_in, moved_out = parts(inside, sum(foreign.values()), sum(missing.values()))
    verdict: Placement = "pure" if lines.last else "unknown"
    if max(np.nan_to_num([moved_in, moved_out])) > MOST_MOVED:
        verdict = "moved"
    if code.empty(region):
        verdict = "empty"
    return PlacedRegion(region, inside, tuple(foreign), tuple(missing), moved_in, moved_out, verdict)


def parts(inside: int, foreign: int, missing: int) -> tuple[float, float]:
    """The share of what is inside that is foreign, and the share of the region's own that is missing."""
    own = inside - foreign
    return (
        foreign / inside if inside else float("nan"),
        missing / (own + missing) if own + missing else float("nan"),
    )


def user_place(function: SampledFunction, instruction: int) -> Place | None:
    """The innermost line of an instruction that is not in kscope's header; None if it is unknown."""
    chain = function.chain(instruction)
    return next((place for place in chain if not place[0].endswith(HEADER)), None)


def shown_place(place: Place | None) -> str:
    """k.py:7"""
    return "" if place is None else f"{Path(place[0]).name}:{place[1]}"


class WeighedCode:
    """A function's instructions, each with a weight: its samples, or 1 if it works.

    Args:
        function: with its code.
        weights: (instructions,) of each.
    """

    def __init__(self, function: SampledFunction, weights: Weights) -> None:
        self.function, self.weights = function, weights
        self._stack = [self.function.between_reads(one) for one in range(len(self.function.at))]

    def lines(self, region: str) -> CodeRegion | None:
        """The region's place in the code and its source lines."""
        return next((one for one in self.function.regions if one.name == region), None)

    def has(self, region: str) -> bool:
        return self.lines(region) is not None and region not in self.function.unresolved

    def inside(self, region: str) -> int:
        """The weight of the region, without those in nested ones."""
        return int(sum(self.weights[one] for one, stack in enumerate(self._stack) if stack[-1:] == (region,)))

    def at_lines(self, covers: Callable[[str, int], bool]) -> int:
        """The weight of the instructions that are from source lines, also inlined there."""
        found = [any(covers(*place) for place in self.function.chain(one)) for one in range(len(self.function.at))]
        return int(self.weights[found].sum())

    def empty(self, region: str) -> bool:
        """Whether the region has no instruction but its clock reads and moves; also none of nested regions."""
        inside = (one for one, stack in enumerate(self._stack) if region in stack)
        return is_empty(_opcode(self.function.text[one]) for one in inside)

    def foreign(self, region: str) -> dict[str, int]:
        """Weights of instructions in the region that belong to other lines, by text."""
        lines = self.lines(region)
        if lines is None or not lines.last:
            return {}
        found: dict[str, int] = {}
        for one, stack in enumerate(self._stack):
            chain = self.function.chain(one)
            elsewhere = not lines.has(chain) and any(file == lines.file for file, _ in chain)
            if elsewhere and stack[-1:] == (region,) and self.weights[one] and not self._marks(one):
                found[self._named(one)] = found.get(self._named(one), 0) + int(self.weights[one])
        return found

    def missing(self, region: str) -> dict[str, int]:
        """Weights of instructions of the region's lines that are not in it, by text; not of its marks' own lines."""
        lines = self.lines(region)
        if lines is None or not lines.last:
            return {}
        marks = (lines.first,) if lines.file.endswith(".py") else (lines.first, lines.last)
        nested = [one for one in self.function.regions if one.file == lines.file and one.name != region
                  and lines.first <= one.first and one.last <= lines.last]  # fmt: skip
        found: dict[str, int] = {}
        for one, stack in enumerate(self._stack):
            chain = self.function.chain(one)
            own = [line for file, line in chain if file == lines.file and lines.first <= line <= lines.last]
            if region in stack or not own or not self.weights[one] or self._marks(one):
                continue
            if not any(line in marks for line in own) and not any(part.has(chain) for part in nested):
                found[self._named(one)] = found.get(self._named(one), 0) + int(self.weights[one])
        return found

    def _marks(self, one: int) -> bool:
        """Whether kscope's header has written the instruction, or it reads the clock."""
        return "SR_CLOCK" in self.function.text[one] or any(
            file.endswith(HEADER) for file, _ in self.function.chain(one)
        )

    def _named(self, one: int) -> str:
        place = shown_place(user_place(self.function, one))
        return f"{self.function.at[one]:#06x} {self.function.text[one]}{f' ({place})' if place else ''}"
