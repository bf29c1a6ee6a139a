"""auto="pipeline": marks at the operations on barriers that a module's PTX contains.

In the PTX, a wait names its barrier and parity, an arrival its count or bytes, a bulk copy the barrier at which it
completes: nothing needs to be known of the language. A mark precedes each operation, with its operands:

    //kscope instant pipeline~20expect~20bytes~3D32768~20a.py:46 u32 elected-any pipeline %r22 if %p6
    @%p6 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r22], 32768;

Waits that fail are tried again. Where the loop around a wait does nothing else, it is a region (wait_loops.py).
Elsewhere two marks are around the instruction, and registers keep since when the lane waits for which barrier and
parity: a wait begins at the first try, and is recorded where one succeeds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath

from ..capture.model import Problem
from ..instrument.recording import Recording
from ..instrument.selection.auto import Selection
from ..marks import operations
from ..marks.grammar import PREFIX, Act, Mark
from ..marks.operations import Operation
from ..marks.strategies import ANY_LANE
from ..ptx import cfg
from ..ptx.operations import WIDE
from . import source_lines, wait_loops

_KNOWN = re.compile(r"mbarrier\.|cp\.async\.|(?:st|red)\.async|multimem\.cp|tcgen05\.commit|wgmma\.(?:commit|wait)")
_STATEMENT = re.compile(r"(?:@(!?)\s*([%\w$]+)\s+)?([\w.:]+)\s*(.*);", re.S)
_OPERAND = re.compile(r"\{[^}]*\}|\[(?:[^\[\]{}]|\{[^}]*\})*\]|[^,\s][^,\[\]{}]*")
_WIDE = re.compile(r"%rd\d+")
_FIRST = re.compile(r"(?:@!?\s*[%\w$]+\s+)?[\w.:]+\s+(\{[^}]*\}|[^,\[;]+)")
_MOVED = re.compile(r"mov\.[bsu](?:32|64)\s+(%\w+),\s*(\d+);")
_REGISTER = re.compile(r"%\w+")
_WAIT = re.compile(r"mbarrier\.(?:try|test)_wait\.")
_GROUPS = {
    "cp.async.commit_group": ("commit", "cp.async"),
    "cp.async.wait_group": ("drain", "cp.async"),
    "cp.async.wait_all": ("drain", "cp.async"),
    "cp.async.bulk.commit_group": ("commit", "cp.async.bulk"),
    "cp.async.bulk.wait_group": ("drain", "cp.async.bulk"),
    "cp.async.bulk.wait_group.read": ("drain", "cp.async.bulk"),
    "wgmma.commit_group.sync.aligned": ("commit", "wgmma"),
    "wgmma.wait_group.sync.aligned": ("drain", "wgmma"),
}


@dataclass(frozen=True)
class Marked:
    """A text with the marks.

    Attributes:
        text: the text; the same object if it has no such operation.
        places: file:line of each name, where it is known.
        problems: what is not recorded.
    """

    text: str
    places: dict[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def concerns(text: str, recording: Recording) -> bool:
    """Whether a module's PTX may have something to record: marks, or operations that are selected."""
    return PREFIX in text or (operations.PIPELINE in recording.selection.kinds and _KNOWN.search(text) is not None)


def marked(text: str, names: Mapping[str, str], selection: Selection) -> Marked:
    """Mark the operations of a module's kernels.

    Args:
        text: PTX.
        names: symbol -> the kernel's name, if it has another one.
        selection: of the recording; its patterns choose kernels.
    """
    if not _KNOWN.search(text):
        return Marked(text)
    files = source_lines.files(text)
    edits: list[tuple[int, str]] = []
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
    out, at = [], 0
    for place, comment in edits:
        out += [text[at:place], comment]
        at = place
    return Marked("".join([*out, text[at:]]) if edits else text, places, tuple(problems))


@dataclass
class _Function:
    """One kernel. unknown: what is not recorded, and how often."""

    function: cfg.Function
    files: dict[int, str]
    places: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)

    def edits(self) -> Iterator[tuple[int, str]]:
        """Comments and the offsets that they go to, in order."""
        opened, first = (
            -1,
            (0, 0),
        )  # the outermost brace, and the line of its first statement: the next ones are counted
        number = 0  # in the assembly's own text
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
            operation = _Operation(self, found, source_lines.where(source, self.files), number)
            around = statement.start, statement.end
            if _WAIT.match(found[3]) and (loop := wait_loops.around(self.function, i)) is not None:
                operation.loops, around = True, loop
            for before, mark in operation.marks():
                place = around[0] if before else around[1]
                yield place, f"{'' if before else chr(10) + chr(9)}{mark.comment()}\n\t"

    def _code(self, statement: cfg.Statement) -> str:
        """The first words of a statement without its guard."""
        head = self.function.text[statement.start : min(statement.end, statement.start + 80)]
        return head.split(None, 1)[-1].lstrip() if head.startswith("@") else head

    @cached_property
    def constants(self) -> dict[str, int]:
        """Registers that only one statement writes, with a number."""
        writes, numbers = Counter[str](), dict[str, int]()
        for one in self.function.statements:
            if one.sort in ("other", "access", "wait", "call"):
                first = _FIRST.match(self.function.text, one.start, one.end)
                writes.update(_REGISTER.findall(first[1]) if first else ())
                if not one.predicate and (moved := _MOVED.match(self.function.text, one.start, one.end)):
                    numbers[moved[1]] = int(moved[2])
        return {register: number for register, number in numbers.items() if writes[register] == 1}

    def number(self, operand: str) -> int | None:
        """The number that an operand is, if the code shows it."""
        if re.fullmatch(r"0[xX][\da-fA-F]+|\d+", operand):
            return int(operand, 0)
        return self.constants.get(operand)

    def miss(self, why: str) -> None:
        self.unknown[why] = self.unknown.get(why, 0) + 1


@dataclass
class _Operation:
    """One instruction."""

    owner: _Function
    found: re.Match[str]
    where: str | None
    number: int
    loops: bool = False

    def marks(self) -> Iterator[tuple[bool, Mark]]:
        """(before the instruction, mark)."""
        negated, guard, code, rest = self.found.groups()
        arguments = [one.strip() for one in _OPERAND.findall(rest)]
        words = code.split(".")
        when = f"{negated}{guard}" if guard else None
        if code in _GROUPS:
            yield from self._group(code, arguments, when)
        elif words[0] == "mbarrier":
            yield from self._mbarrier(code, words, arguments, when)
        elif code.startswith("cp.async.mbarrier.arrive"):
            fixed = {} if ".noinc" in code else {"count": 0}
            yield self._point("follow", arguments[0], code, when, **fixed)
        elif code.startswith("tcgen05.commit"):
            several = {"multicast": 1} if "multicast::cluster" in code else {}
            yield self._point("follow", arguments[0], code, when, **several)
            self._several(code)
        elif "complete_tx::bytes" in code:
            yield from self._copy(code, words, arguments, when)

    def _group(self, code: str, arguments: list[str], when: str | None) -> Iterator[tuple[bool, Mark]]:
        operation, of = _GROUPS[code]
        if operation == "commit":
            yield True, self._mark("instant", "commit", "0", when, of=of)
        elif when is not None:
            self.owner.miss(f"{code} under a predicate is not recorded")
        else:
            left = arguments[0] if arguments else "0"
            yield True, self._mark("enter", "drain", left, None, of=of)
            yield False, self._mark("exit", "drain", None, None, of=of)

    def _mbarrier(
        self, code: str, words: list[str], arguments: list[str], when: str | None
    ) -> Iterator[tuple[bool, Mark]]:
        operation = words[1]
        if operation == "init":
            yield from self._counted("init", "count", arguments[0], arguments[1], code, when)
        elif operation in ("try_wait", "test_wait"):
            yield from self._wait(code, words, arguments, when)
        elif operation == "expect_tx":
            yield from self._counted("expect_tx", "bytes", arguments[0], arguments[1], code, when)
        elif operation == "arrive" and "expect_tx" in words:
            yield from self._counted("expect", "bytes", arguments[-2], arguments[-1], code, when)
        elif operation in ("arrive", "arrive_drop"):
            if operation == "arrive_drop":
                self.owner.miss("mbarrier.arrive_drop changes how many arrivals a phase has: later phases are unknown")
            barrier = next((n for n, one in enumerate(arguments) if one.startswith("[")), 0)
            count = arguments[barrier + 1] if len(arguments) > barrier + 1 else "1"
            if self.owner.number(count) == 1:
                yield self._point("arrive", arguments[barrier], code, when)
            else:
                yield from self._counted("arrive", "count", arguments[barrier], count, code, when)
        elif operation in ("inval", "pending_count"):
            return
        else:
            self.owner.miss(f"{code} is not recorded")

    def _wait(self, code: str, words: list[str], arguments: list[str], when: str | None) -> Iterator[tuple[bool, Mark]]:
        if when is not None:
            self.owner.miss(f"{code} under a predicate is not recorded")
            return
        if "parity" not in words:
            self.owner.miss(f"{code} waits for a token, not for a parity: it is not recorded")
            return
        over = arguments[0].partition("|")[0].strip()
        address = self._address(arguments[1], code)
        yield True, self._mark("enter" if self.loops else "attempt", "wait", f"{address}|{arguments[2]}", None)
        yield False, self._mark("exit", "wait", None, None) if self.loops else self._mark("success", "wait", over, None)

    def _counted(
        self, operation: Operation, what: str, barrier: str, count: str, code: str, when: str | None
    ) -> Iterator[tuple[bool, Mark]]:
        """An operation with a number, in its name or in a record that follows."""
        number = self.owner.number(count)
        yield self._point(operation, barrier, code, when, **({} if number is None else {what: number}))
        if number is None:
            yield self._bytes(count, when)

    def _copy(self, code: str, words: list[str], arguments: list[str], when: str | None) -> Iterator[tuple[bool, Mark]]:
        places = [n for n, one in enumerate(arguments) if one.startswith("[")]
        bulk = words[:3] == ["cp", "async", "bulk"] or words[0] == "multimem"
        if len(places) < (3 if bulk else 2):
            self.owner.miss(f"{code} is not recorded")
            return
        size = arguments[2] if bulk and "tensor" not in words else None
        known = self.owner.number(size) if size else None
        fixed: dict[str, int] = {} if known is None else {"bytes": known}
        if "multicast::cluster" in code:
            fixed["multicast"] = 1
            self._several(code)
        yield self._point("copy", arguments[places[2 if bulk else 1]], code, when, **fixed)
        if size and "bytes" not in fixed:
            yield self._bytes(size, when)

    def _several(self, code: str) -> None:
        """Note what is not known of an instruction that several blocks see."""
        if "multicast::cluster" in code:
            self.owner.miss(
                f"{code} completes at barriers of several blocks, and is recorded for the one that its address names:"
                " of the others' phases it is not known when their copies were issued"
            )

    def _point(
        self, operation: Operation, barrier: str, code: str, when: str | None, **fixed: int
    ) -> tuple[bool, Mark]:
        return True, self._mark("instant", operation, self._address(barrier, code), when, **fixed)

    def _bytes(self, register: str, when: str | None) -> tuple[bool, Mark]:
        return True, self._mark("instant", "bytes", register, when)

    def _mark(self, act: Act, operation: Operation, operand: str | None, when: str | None, **fixed: int | str) -> Mark:
        file, _, line = (self.where or "").rpartition(":")
        name = operations.named(operation, f"{PurePath(file).name}:{line}" if file else f"#{self.number}", **fixed)
        if self.where:
            self.owner.places[name] = self.where
        return Mark(act, name, "u32" if act != "exit" else None, ANY_LANE, "pipeline", operand, when)

    def _address(self, operand: str, code: str) -> str:
        """The operand of a mark for an address in brackets."""
        inside = re.sub(r"\s", "", operand.strip("[]"))
        if ".shared" not in code:
            return f"generic:{inside}"
        return f"{WIDE}{inside}" if _WIDE.match(inside) else inside
