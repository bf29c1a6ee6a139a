"""Finds statements of CUDA C++ by kind: loops, barriers, waits, copies, tensor-core instructions, loads and stores. A
statement is of a kind if its C++ or inline assembly matches the kind's pattern; it loads or stores if it accesses an
element of one of the function's pointers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kscope.errors import UsageError
from kscope.instrument.selection import auto
from kscope.instrument.selection.auto import Lines, Selection
from kscope.instrument.selection.catalog import Site

from .functions import Function
from .insert import insert_marks
from .ranges import LineRange, Source, StatementRange
from .statements import Block, Statement
from .tokens import UnreadableError

_PATTERNS = {
    ("async_wait", "wait"): r"cp\.async\.wait|cp_async_wait|__pipeline_wait_prior|\bpipeline\w*_wait|consumer_wait",
    ("wait",): r"\.(?:try|test)_wait|wait_group|wait_all|wgmma\.wait|\w*wait\w*\s*\(|tcgen05\.wait",
    ("tma",): r"cp\.async\.bulk|cp_async_bulk|cp_reduce_async|\btma_\w+\s*\(|memcpy_async",
    ("wgmma", "dot"): r"wgmma|warpgroup_(?:mma|gemm)",
    ("mma", "dot"): r"\bmma\.sync|\bmma_sync|tcgen05\.mma|wmma::mma",
    ("barrier",): r"__sync(?:threads|warp)|\bbar(?:rier)?\.|mbarrier\.arrive|\barrive\w*\s*\(|(?:\.\s*|_)sync\s*\(",
}
_WAITS = [kinds for kinds in _PATTERNS if "wait" in kinds]
_ASSIGNMENTS = {"=", "+", "-", "*", "/", "%", "&", "|", "^", "<", ">"}


@dataclass(frozen=True)
class MarkedRange:
    """Statements to mark, their kind (or "lines"), and the lines of the loops around them."""

    statements: StatementRange
    kind: str
    loops: tuple[int, ...]

    def site(self, source: Source) -> Site:
        """The catalog's entry."""
        lines, statements = self.statements.lines, self.statements.statements
        name = lines.selected.file
        loops = tuple(f"{name}:{lines.user_line(line)}" for line in self.loops)
        first, last = lines.user_line(source.start(statements[0])), lines.user_line(source.end(statements[-1]))
        where = f"{name}:{first}" if first == last else f"{name}:{first}-{last}"
        return Site(lines.selected.name, self.kind, where, loops, operations=len(statements))


def by_kind(source: Source, selection: Selection) -> list[MarkedRange]:
    """Statements of the selected kinds that can be marked, in order."""
    found: list[MarkedRange] = []
    for function in source.functions:
        if function.constant or (function.kernel and not selection.of_kernel(function.name)):
            continue
        try:
            body = source.body(function)
        except UnreadableError:
            continue
        candidates = _Finder(source, selection, function).find(body, body, ())
        found += [one for one in candidates if _can_be_marked(source, one)]
    return found


def loops(source: Source, region: StatementRange) -> tuple[int, ...]:
    """The lines of the loops around a region, outermost first."""
    first, last = region.statements[0], region.statements[-1]
    return tuple(
        source.start(one)
        for statement in source.body(region.function).statements
        for one in statement.walk()
        if one.kind == "loop" and one.keyword <= first.keyword and last.last <= one.last and one is not first
    )


def _can_be_marked(source: Source, found: MarkedRange) -> bool:
    try:
        insert_marks(source, [found.statements])
    except UsageError:
        return False
    return True


@dataclass(frozen=True)
class _Finder:
    source: Source
    selection: Selection
    function: Function

    def find(self, block: Block, root: Block, loops: tuple[int, ...]) -> Iterator[MarkedRange]:
        for at, statement in enumerate(block.statements):
            kind = self.selection.kind(self._kinds(statement))
            if kind is not None:
                yield self._range(kind, statement, root, block, at, at, loops)
            line = self.source.start(statement)
            inner = (*loops, line) if statement.kind == "loop" else loops
            for part in statement.blocks:
                if statement.kind == "loop" and part.statements and "iteration" in self.selection.kinds:
                    yield self._range("iteration", statement, root, part, 0, len(part.statements) - 1, inner)
                yield from self.find(part, root, inner)

    def _range(
        self, kind: str, statement: Statement, root: Block, block: Block, first: int, last: int, loops: tuple[int, ...]
    ) -> MarkedRange:
        line = self.source.start(statement)
        name = auto.name(kind, self.function.name, line)
        lines = LineRange(Lines(name, self.function.name, line, self.source.end(statement), "auto"), line, line)
        return MarkedRange(StatementRange(lines, self.function, root, block, first, last), kind, loops)

    def _kinds(self, statement: Statement) -> tuple[str, ...]:
        """The kinds of a statement, most specific first."""
        code = self.source.tokens.code
        if statement.kind == "loop":
            inner = min((one.first for part in statement.blocks for one in part.statements), default=statement.last)
            header = " ".join(token.text for token in code[statement.keyword : inner])
            return (*next((kinds for kinds in _WAITS if re.search(_PATTERNS[kinds], header)), ()), "loop")
        if statement.kind != "plain" or statement.bodies or statement.last < statement.keyword:
            return ()
        tokens = code[statement.keyword : statement.last + 1]
        text = self.source.tokens.source[tokens[0].start : tokens[-1].end]
        found = [kinds for kinds, pattern in _PATTERNS.items() if re.search(pattern, text)]
        return tuple(kind for kinds in found for kind in kinds) + self._memory(statement)

    def _memory(self, statement: Statement) -> tuple[str, ...]:
        """The kinds "store" and "load", for a statement that writes or reads an element of the function's pointers."""
        code, partner = self.source.tokens.code, self.source.tokens.partners
        found = set[str]()
        for at in range(statement.keyword, statement.last):
            if code[at].kind == "identifier" and code[at].text in self.function.pointers and code[at + 1].text == "[":
                after = [code[place].text for place in range(partner[at + 1] + 1, min(partner[at + 1] + 3, len(code)))]
                written = after[0] == "=" != after[1] or (after[0] in _ASSIGNMENTS and after[1] == "=" != after[0])
                found.add("store" if written and at == statement.keyword else "load")
                if written and after[0] != "=":
                    found.add("load")
        return tuple(kind for kind in ("store", "load") if kind in found)
