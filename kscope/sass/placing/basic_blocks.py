"""Both sides of a labeled kernel as basic blocks: its PTX, and the machine code that ptxas made of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ..checks.hazards import successors
from ..cubin.instructions import BYTES, Function, Instruction
from .flow import Flow
from .labels import Labeled

LANDMARKS = frozenset(
    {
        "ATOM", "ATOMG", "ATOMS", "BAR", "CCTL", "DEPBAR", "ERRBAR", "FENCE", "LD", "LDG", "LDGDEPBAR", "LDGSTS", "LDS",
        "LDSM", "MEMBAR", "RED", "REDG", "ST", "STG", "STS", "STSM", "SYNCS", "UTMALDG", "UTMASTG", "WARPGROUP",
    }
)  # fmt: skip
"""Opcodes of landmarks: ptxas keeps these where the text has them."""
LOADS = frozenset({"LD", "LDG", "LDS", "LDSM"})
"""Landmarks that ptxas may leave out if others have read the same."""
MOVED = LOADS | {"ST", "STG", "STS", "STSM"}
"""Landmarks that ptxas may let pass each other, if their addresses differ."""
FENCES = frozenset({"CCTL", "ERRBAR", "FENCE", "MEMBAR"})
"""Landmarks of which one statement may have several."""
NEVER = ("@!PT", "@!UPT")
_ONE_EACH = re.compile(r"(?:add|sub|mul|fma|min|max)(?:\.\w+)*\.f32\b|shfl\.")
_SPINS = re.compile(r"\s*setmaxnreg\.inc\b")
_ONCE = frozenset({"FADD", "FFMA", "FMNMX", "FMUL", "SHFL"})
"""Statements that become one of these instructions, which ptxas does not compute twice."""


@dataclass(frozen=True)
class Text:
    """The PTX of a labeled kernel. Statements and blocks are identified by number."""

    labels: Labeled

    @cached_property
    def block(self) -> dict[int, int]:
        """The block of each statement."""
        return {
            number: index for index, block in enumerate(self.labels.blocks) for number in range(block.first, block.last)
        }

    @cached_property
    def flow(self) -> Flow:
        blocks, statements = self.labels.blocks, self.labels.kernel.statements
        leaves = frozenset(
            index
            for index, block in enumerate(blocks)
            if not block.successors or any(one.sort == "leave" for one in statements[block.first : block.last])
        )
        return Flow(tuple(tuple(dict.fromkeys(block.successors)) for block in blocks), leaves)

    @property
    def marks(self) -> tuple[int, ...]:
        """The statements that are marks and record."""
        return self.labels.recording

    @cached_property
    def holders(self) -> frozenset[int]:
        """The statements that hold values and predicates of marks."""
        return frozenset(one for some in self.labels.held.values() for one in some if one is not None)

    def fixed(self, one: Instruction, statement: int) -> bool:
        """True if an instruction keeps its place in the text, before everything that follows it there."""
        return one.name in LANDMARKS - MOVED and not self.conditional(statement)

    @cached_property
    def _single(self) -> frozenset[int]:
        kernel = self.labels.kernel
        return frozenset(
            number
            for number, one in enumerate(kernel.statements)
            if not one.predicate and _ONE_EACH.match(kernel.text, one.start, one.end)
        )

    def single(self, one: Instruction, statement: int) -> bool:
        """True if an instruction is the only one in one copy of its statement."""
        return one.name in _ONCE and statement in self._single

    def conditional(self, statement: int) -> bool:
        """True if a statement has a predicate."""
        return bool(self.labels.kernel.statements[statement].predicate)

    def spins(self, statement: int) -> bool:
        """True if a statement without a branch becomes a loop that repeats it until it succeeds."""
        one = self.labels.kernel.statements[statement]
        return _SPINS.match(self.labels.kernel.text, one.start, one.end) is not None

    def branch(self, statement: int) -> bool:
        """True if a statement is a branch or an exit."""
        return self.labels.kernel.statements[statement].sort in ("jump", "leave")

    def within(self, block: int) -> range:
        """The statements of a block."""
        return range(self.labels.blocks[block].first, self.labels.blocks[block].last)

    def before(self, one: int, other: int) -> bool:
        """True if a statement precedes another one within one iteration of the innermost loop around both."""
        first, second = self.block[one], self.block[other]
        return one < other if first == second else self.flow.before(first, second)


@dataclass(frozen=True)
class Machine:
    """Machine code, and by address the statement from which each instruction comes."""

    function: Function
    statements: Mapping[int, int]

    @cached_property
    def blocks(self) -> tuple[tuple[Instruction, ...], ...]:
        """The basic blocks, in order of address."""
        starts = {0, *self.function.targets}
        for one in self.function.instructions:
            if one.name == "EXIT" or successors(one) != (one.at + BYTES,):
                starts.add(one.at + 16)
        found = list[list[Instruction]]()
        for one in self.function.instructions:
            if one.at in starts or not found:
                found.append([])
            found[-1].append(one)
        return tuple(map(tuple, found))

    @cached_property
    def flow(self) -> Flow:
        first = {block[0].at: index for index, block in enumerate(self.blocks)}
        following = tuple(tuple(first[to] for to in successors(block[-1]) if to in first) for block in self.blocks)
        leaves = frozenset(
            index for index, block in enumerate(self.blocks) if block[-1].name == "EXIT" or not following[index]
        )
        return Flow(following, leaves)

    def labeled(self, block: int) -> Iterator[tuple[int, Instruction, int]]:
        """The instructions of a block that come from a statement: position, instruction, statement."""
        for place, one in enumerate(self.blocks[block]):
            statement = self.statements.get(one.at)
            if statement is not None and one.guard not in NEVER:
                yield place, one, statement
