"""auto="pipeline": puts marks at the operations on barriers in a module's PTX.

A mark precedes each operation, with its operands:

    //kscope instant pipeline~20expect~20bytes~3D32768~20a.py:46 u32 elected-any pipeline %r22 if %p6
    @%p6 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r22], 32768;
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..capture.model import Problem
from ..instrument.recording import Recording
from ..instrument.selection.auto import Selection
from ..marks import operations
from ..marks.grammar import PREFIX, Mark
from ..ptx import cfg
from ..ptx.operations import address
from . import source_lines, wait_loops
from .group_bytes import group_bytes
from .known_registers import Registers
from .pipeline_instructions import Instruction
from .text_edits import edited

_KNOWN = re.compile(r"mbarrier\.|cp\.async\.|(?:st|red)\.async|multimem\.cp|tcgen05\.commit|wgmma\.(?:commit|wait)")
_STATEMENT = re.compile(r"(?:@(!?)\s*([%\w$]+)\s+)?([\w.:]+)\s*(.*);", re.S)
_WAIT = re.compile(r"mbarrier\.(?:try|test)_wait\.")


@dataclass(frozen=True)
class Marked:
    """A text with the marks.

    Attributes:
        text: the text; the same object if it has no such operation.
        places: file:line of each name, where it is known.
        problems: operations that are not recorded.
    """

    text: str
    places: dict[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def concerns(text: str, recording: Recording) -> bool:
    """True if a module's PTX may have something to record: marks, or operations that are selected."""
    return PREFIX in text or (operations.PIPELINE in recording.selection.kinds and _KNOWN.search(text) is not None)


def mark_operations(text: str, names: Mapping[str, str], selection: Selection) -> Marked:
    """Mark the operations of a module's kernels.

    In the PTX, a wait names its barrier and parity, an arrival its count or bytes, a bulk copy the barrier at which it
    completes, so the language does not matter. Waits that fail are tried again. Where the loop around a wait does
    nothing else, it is a region (wait_loops.py). Elsewhere two marks are around the instruction, and registers keep the
    barrier, the parity and the start of the wait: it begins at the first try, and is recorded where one succeeds.

    Args:
        text: PTX.
        names: symbol -> the kernel's name, if it has another one.
        selection: of the recording; its patterns choose kernels.
    """
    if not _KNOWN.search(text):
        return Marked(text)
    files = source_lines.files(text)
    edits: list[tuple[int, int, str]] = []
    places: dict[str, str] = {}
    problems: list[Problem] = []
    for function in cfg.functions(text):
        name = names.get(function.name, function.name)
        if function.kind == "entry" and selection.of_kernel(name):
            found = _Function(function, files)
            edits += found.edits()
            places |= found.places
            problems += [
                Problem("pipeline", f"kernel {name}: {why}", kernel=name, count=count)
                for why, count in found.unknown.items()
            ]
        elif function.kind == "func" and _KNOWN.search(text, function.open, function.close):
            why = f"operations on barriers in {name} are not recorded: the function is not inlined"
            problems.append(Problem("pipeline", why))
    return Marked(edited(text, edits) if edits else text, places, tuple(problems))


@dataclass(frozen=True)
class _Placed:
    """A mark, its statement, and its offset: before the statement or after it."""

    statement: int
    place: int
    before: bool
    mark: Mark

    def with_copy(self, copy: _Placed) -> _Placed:
        """The mark of both; the statement is the later one's."""
        mine, more = operations.of_name(self.mark.name), operations.of_name(copy.mark.name)
        assert mine is not None
        assert more is not None
        copies = max(mine.copies, int(mine.operation == "copy")) + 1
        known = mine.bytes if mine.operation == "copy" else mine.copied if mine.copies else 0
        fixed: dict[str, int] = {"copies": copies}
        if mine.operation == "expect" and mine.bytes is not None:
            fixed["bytes"] = mine.bytes
        if known is not None and more.bytes is not None:
            fixed["bytes" if mine.operation == "copy" else "copied"] = known + more.bytes
        place = self.mark.name.rpartition(" ")[2]
        name = operations.operation_name(mine.operation, place, **fixed)
        return replace(self, statement=copy.statement, mark=replace(self.mark, name=name))

    def with_commit(self) -> _Placed:
        """The mark of a wait for groups, if one was committed directly before."""
        mine = operations.of_name(self.mark.name)
        assert mine is not None
        name = operations.operation_name("drain", self.mark.name.rpartition(" ")[2], of=mine.of, commits=1)
        return replace(self, mark=replace(self.mark, name=name))


@dataclass
class _Function:
    """One kernel. unknown: operations that are not recorded, with their counts."""

    function: cfg.Function
    files: dict[int, str]
    places: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)

    @cached_property
    def registers(self) -> Registers:
        return Registers(self.function)

    @cached_property
    def group_bytes(self) -> dict[int, int]:
        return group_bytes(self.function, cfg.blocks(self.function))

    def edits(self) -> Iterator[tuple[int, int, str]]:
        """Comments to insert, see edited()."""
        # the outermost brace, and the line of its first statement: the next ones are counted
        opened, first = -1, (0, 0)
        number = 0  # in the assembly's own text
        found_marks: list[_Placed] = []
        for i, statement in enumerate(self.function.statements):
            if statement.scope and statement.scope[0] != opened:
                opened, first = statement.scope[0], statement.source
            if statement.sort not in ("access", "wait", "other"):
                continue
            if not _KNOWN.match(self._code(statement)):
                continue
            found = _STATEMENT.fullmatch(self.function.text, statement.start, statement.end)
            if found is None:
                continue
            source = first if statement.scope else statement.source
            number += 1
            operation = Instruction(
                self.registers, self.miss, self.places, found, source_lines.where(source, self.files), number
            )
            around = statement.start, statement.end
            operation.bytes = self.group_bytes.get(i)
            if _WAIT.match(found[3]) and (loop := wait_loops.around(self.function, i)) is not None:
                operation.loops, around = True, loop
            for before, mark in operation.marks():
                found_marks.append(_Placed(i, around[0] if before else around[1], before, mark))
        for one in self._merged(found_marks):
            yield one.place, one.place, f"{'' if one.before else chr(10) + chr(9)}{one.mark.comment()}\n\t"

    def _merged(self, found: list[_Placed]) -> list[_Placed]:
        """Merge copies that follow an operation on the same barrier, in the same lanes, into its record; and a commit
        into the record of the wait that follows, which then begins before the commit.
        """
        kept: list[_Placed] = []
        drained = set[int]()
        for one in found:
            before = kept[-1] if kept else None
            if before is not None and self._continues(before, one):
                kept[-1] = before.with_copy(one)
            elif before is not None and self._commits(before, one):
                kept[-1] = replace(one.with_commit(), place=before.place)
                drained.add(one.statement)
            else:
                kept.append(one.with_commit() if one.statement in drained else one)
        return kept

    def _commits(self, before: _Placed, one: _Placed) -> bool:
        first, second = operations.of_name(before.mark.name), operations.of_name(one.mark.name)
        between = self.function.statements[before.statement + 1 : one.statement]
        return (
            first is not None
            and second is not None
            and (first.operation, second.operation, one.mark.act) == ("commit", "drain", "enter")
            and first.of == second.of == operations.OF_WARP
            and all(statement.sort == "other" for statement in between)
        )

    def _continues(self, before: _Placed, one: _Placed) -> bool:
        first, second = operations.of_name(before.mark.name), operations.of_name(one.mark.name)
        if first is None or second is None or second.operation != "copy" or first.operation not in ("expect", "copy"):
            return False
        between = self.function.statements[before.statement + 1 : one.statement]
        return (
            address(before.mark.operand or "") == address(one.mark.operand or "")
            and self.registers.is_fixed(one.mark.operand or "")
            and first.multicast == second.multicast * (first.operation == "copy")
            and self.registers.condition(before.mark.when) == self.registers.condition(one.mark.when)
            and not any(statement.flushes for statement in between)
        )

    def _code(self, statement: cfg.Statement) -> str:
        """The first words of a statement without its guard."""
        head = self.function.text[statement.start : min(statement.end, statement.start + 80)]
        return head.split(None, 1)[-1].lstrip() if head.startswith("@") else head

    def miss(self, why: str) -> None:
        self.unknown[why] = self.unknown.get(why, 0) + 1
