"""Places the marks of auto="pipeline" in machine code: each is at the instruction of its operation."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ...errors import UnsupportedError
from ...marks import operations
from ...marks.grammar import Mark
from ...ptx.operations import EACH, FIRST, ONE, executing_lanes
from ..cubin.instructions import BYTES, Instruction
from . import operands, uniform_code
from .basic_blocks import NEVER, Machine, Text
from .mark_order import Spot
from .operands import Source

_CODES = {
    "init": r"SYNCS\.EXCH\.64",
    "arrive": r"SYNCS\.ARRIVE\.TRANS64\b.*",
    "expect": r"SYNCS\.ARRIVE\.TRANS64\b.*",
    "expect_tx": r"SYNCS\.ARRIVE\.TRANS64\b.*",
    "copy": r"UTMALDG\b.*",
    "commit cp.async.bulk": r"UTMACMDFLUSH",
    "commit cp.async": r"LDGDEPBAR",
    "drain cp.async.bulk": r"DEPBAR\.LE",
    "drain cp.async.bulk.read": r"DEPBAR\.LE",
    "drain cp.async": r"DEPBAR\.LE",
    "drain wgmma": r"WARPGROUP\.DEPBAR\.LE",
}
"""The instructions that each operation becomes."""
_WAIT = re.compile(r"SYNCS\.PHASECHK\.TRANS64\.TRYWAIT")
_ALL_LANES = 31
_TRIVIAL = frozenset({"NOP", "BRA"})


def is_pipeline(mark: Mark) -> bool:
    """True if a mark belongs to a pipeline operation."""
    return mark.how == operations.PIPELINE


@dataclass(frozen=True)
class _Wait:
    """A wait in machine code: the first try, the repeated try, and the code after them.

    A wait in a loop becomes two instructions. The second is after the kernel's other code, and repeats until it
    succeeds:

                TRYWAIT P0, [UR26], R5        the record begins before it
            @!P0 BRA again
        over:                                 and ends here
                ...
        again:  TRYWAIT P0, [UR26], R5
            @!P0 BRA again
                BRA over
    """

    first: Instruction
    again: Instruction
    over: int


@dataclass(frozen=True)
class Pipeline:
    """The marks of a kernel's pipeline."""

    text: Text
    code: Machine

    @cached_property
    def relabeled(self) -> Machine:
        """The machine code in which first tries have the statement of their wait instead of the preceding one."""
        return self._firsts({statement: statement for statement in self._waits}) if self.marked else self.code

    @cached_property
    def entered(self) -> Machine:
        """The same with the last statement before the wait's loop, which runs as often as the first try."""
        return self._firsts(dict(self._ahead())) if self.marked else self.code

    def _firsts(self, statements: Mapping[int, int]) -> Machine:
        firsts = {one.first.at: statements[wait] for wait in statements for one in self._waits[wait]}
        return replace(self.code, statements={**self.code.statements, **firsts})

    def _ahead(self) -> Iterator[tuple[int, int]]:
        statements, blocks = self.text.labels.kernel.statements, self.text.block
        for wait in self._waits:
            before = next(one for one in range(wait, -1, -1) if blocks[one] != blocks[wait])
            while before and statements[before].mark is not None:
                before -= 1
            yield wait, before

    @cached_property
    def marked(self) -> bool:
        """True if there are any."""
        return any(map(is_pipeline, self.text.labels.marks))

    def spots(self) -> tuple[Spot, ...]:
        """The places of all marks of the pipeline.

        Raises:
            UnsupportedError: a mark has no certain place.
        """
        if not self.marked:
            return ()
        self._check_waits()
        found, pending = list[Spot](), dict[str, int]()
        for number, statement in enumerate(self.text.marks):
            mark = self.text.labels.marks[number]
            if not is_pipeline(mark):
                continue
            if mark.act == "enter":
                pending[mark.name] = number
            elif mark.act == "exit":
                found += self._region(pending.pop(mark.name), number)
            else:
                found += self._instant(number, statement)
        return tuple(found)

    def _known(self, mark: Mark) -> operations.Named:
        known = operations.of_name(mark.name)
        assert known is not None
        return known

    def _refuse(self, mark: Mark, why: str) -> UnsupportedError:
        return UnsupportedError(f"{mark.display_name}: {why}")

    def _region(self, enter: int, leave: int) -> Iterator[Spot]:
        mark, marks = self.text.labels.marks[enter], self.text.marks
        known = self._known(mark)
        kernel = self.text.labels.kernel
        between = [n for n in range(marks[enter], marks[leave]) if kernel.statements[n].mark is None]
        if known.operation == "wait":
            (statement,) = [n for n in between if "mbarrier" in self._words(n)]
            if not self._waits.get(statement):
                raise self._refuse(mark, "its wait has another form in the machine code")
            for wait in self._waits[statement]:
                yield Spot(enter, wait.first.at, 0, False, source=self._awaited(wait.first))
            for over in dict.fromkeys(wait.over for wait in self._waits[statement]):
                yield Spot(leave, over, 0, False)
            return
        how, left = executing_lanes(mark.operand or "0")
        if how in (ONE, EACH) or not left.isdecimal():
            raise self._refuse(mark, "its lanes are not known")
        for block, place, one in self._copies(mark, between[-1]):
            if one.conditional:
                raise self._refuse(mark, f"it has the predicate {one.guard} in the machine code")
            yield Spot(enter, one.at, 0, False, source=Source(one.at, fixed=int(left)))
            code = self.code.blocks[block]
            ends = next(n for n in range(place + 1, len(code) + 1) if n == len(code) or not self._of(code[n], between))
            after = ends == len(code)
            yield Spot(leave, code[ends - after].at, 0, not one.code.startswith("WARPGROUP"), after=after)

    def _of(self, one: Instruction, statements: list[int]) -> bool:
        return self.code.statements.get(one.at) == statements[-1]

    def _instant(self, number: int, mark_at: int) -> Iterator[Spot]:
        mark, kernel = self.text.labels.marks[number], self.text.labels.kernel
        known, (how, _) = self._known(mark), executing_lanes(mark.operand or "0")
        statement = next(n for n in range(mark_at, len(kernel.statements)) if kernel.statements[n].mark is None)
        if known.operation == "bytes":
            raise self._refuse(mark, "its number of bytes is only known when it runs")
        fixed = self._lanes(mark, how, mark_at) << operations.LANES_SHIFT
        for block, place, one in self._copies(mark, statement):
            at, guard = self._guard(mark, how, block, place, one, statement)
            if known.operation == "commit":
                source = Source(one.at, fixed=fixed, guard=guard)
            else:
                register, uniform, offset = operands.address(one)
                source = Source(one.at, register, uniform, offset, fixed=fixed, guard=guard)
            voted = how == ONE and guard.lstrip("@!").startswith("P")
            yield Spot(number, at, 0, False, source=replace(source, voted=voted))

    def _lanes(self, mark: Mark, how: str, statement: int) -> int:
        """Number of lanes that execute an operation, less one.

        Lane 0 records. If the warp's lanes run the operation's block equally often, lane 0 does as often as the others.
        """
        block = self.text.block[statement]
        if how == FIRST:
            return 0
        if how == EACH or not uniform_code.runs_uniformly(self.text, block):
            raise self._refuse(mark, "which lanes of a warp execute it is not known")
        if how == ONE:
            return 0
        if mark.when is not None and not uniform_code.is_warp_uniform(self.text.labels.kernel, mark.when):
            raise self._refuse(mark, f"which lanes have its predicate {mark.when} is not known")
        return _ALL_LANES

    def _guard(self, mark: Mark, how: str, block: int, place: int, one: Instruction, statement: int) -> tuple[int, str]:
        """The place of an instruction's mark, and the predicate of the lanes that execute it.

        ptxas turns a predicate into a branch; the mark precedes the branch, where all lanes still run.
        """
        if one.conditional:
            if mark.when is None:
                raise self._refuse(mark, f"it has the predicate {one.guard} in the machine code")
            return one.at, one.guard
        if mark.when is None:
            return one.at, ""
        ahead = self.code.flow.predecessors[block]
        if not place and len(ahead) == 1:
            branch = self.code.blocks[ahead[0]][-1]
            passed = branch.target != one.at
            decides = branch.name == "BRA" and branch.conditional and not branch.second_condition
            if decides and self.code.statements.get(branch.at) == statement:
                return branch.at, _contrary(branch.guard) if passed else branch.guard
        if how == ONE and one.name == "UTMALDG":  # which is issued for the warp once
            return one.at, ""
        raise self._refuse(mark, f"its predicate {mark.when} is not known in the machine code")

    def _copies(self, mark: Mark, statement: int) -> list[tuple[int, int, Instruction]]:
        """Positions of an operation's instructions: block, index in it, instruction."""
        known = self._known(mark)
        code = _CODES.get(f"{known.operation} {known.of}".strip())
        if code is None:
            raise self._refuse(mark, "its instruction is not known")
        found = [
            (block, place, one)
            for block in self.code.flow.order
            for place, one, its in self.code.labeled(block)
            if its == statement and re.fullmatch(code, one.code)
        ]
        if not found:
            raise self._refuse(mark, "its instruction is not in the machine code")
        return found

    def _words(self, statement: int) -> str:
        kernel = self.text.labels.kernel
        return kernel.text[kernel.statements[statement].start : kernel.statements[statement].end]

    def _awaited(self, one: Instruction) -> Source:
        register, masked = operands.parity(one, self.code)
        return Source(one.at, *operands.address(one), parity=register, masked=masked)

    @cached_property
    def _waits(self) -> dict[int, list[_Wait]]:
        """The waits of the machine code in the known form, by statement."""
        found = defaultdict[int, list[_Wait]](list)
        for block in self.code.flow.order:
            first, *rest = self.code.blocks[block]
            statement = self.code.statements.get(first.at)
            if statement is not None and _WAIT.fullmatch(first.code) and rest and _again(rest[-1], first):
                found[statement] += self._tries(block, first)
        return found

    def _tries(self, block: int, again: Instruction) -> Iterator[_Wait]:
        """The first tries of a wait that is repeated in a block."""
        flow, blocks = self.code.flow, self.code.blocks
        over = self._over(block, again.at)
        changed = frozenset[str]().union(*(one.writes for one in blocks[block]))
        for ahead in flow.predecessors[block]:
            if ahead == block:
                continue
            code = blocks[ahead]
            branch = code[-1]
            tries = [place for place, one in enumerate(code) if _WAIT.fullmatch(one.code)]
            if not tries or not _again(branch, again) or over is None or branch.at + BYTES != over:
                return
            first = code[tries[-1]]
            written = frozenset[str]().union(*(one.writes for one in code[tries[-1] + 1 :]))
            if first.conditional or first.operands != again.operands or (changed | written) & first.reads:
                return
            if written & first.writes:
                return
            yield _Wait(first, again, over)

    def _over(self, block: int, at: int) -> int | None:
        """The address after a wait, if only the wait leads there."""
        flow, blocks = self.code.flow, self.code.blocks
        (following,) = [one for one in flow.successors[block] if one != block] or [block]
        last = block
        while following != block and all(one.name in _TRIVIAL and not one.conditional for one in blocks[following]):
            if flow.predecessors[following] != (last,):
                return None
            (target,) = flow.successors[following] or (block,)
            last, following = following, target
        first = {one for one in flow.predecessors[block] if one != block}
        if following == block or set(flow.predecessors[following]) != {*first, last}:
            return None
        return blocks[following][0].at

    def _check_waits(self) -> None:
        """Refuse waits in a form that is not known."""
        for mark in self.text.labels.kernel.marks:
            if mark.act == "attempt":
                raise self._refuse(mark, "it is repeated in a loop that does more than waiting")
        known = {one.at for some in self._waits.values() for wait in some for one in (wait.first, wait.again)}
        for block in self.code.flow.order:
            for one in self.code.blocks[block]:
                if one.code.startswith("SYNCS.PHASECHK") and one.guard not in NEVER and one.at not in known:
                    raise UnsupportedError(f"the wait at {one.at:#x} has another form in the machine code")


def _again(branch: Instruction, wait: Instruction) -> bool:
    """True if an instruction branches to a wait when it fails."""
    over = wait.operands[0]
    decides = branch.name == "BRA" and not branch.second_condition
    return decides and branch.target == wait.at and branch.guard == f"@!{over}"


def _contrary(guard: str) -> str:
    return f"@{guard[2:]}" if guard[1] == "!" else f"@!{guard[1:]}"
