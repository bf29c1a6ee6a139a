"""Statements of CUDA C++ by their kind: loops, barriers, waits, copies, tensor-core instructions, loads and stores.

A source tells less than machine code: a statement is of a kind where it has one of the kind's words, in C++ or in the
text of an assembly statement; it loads or stores where it has an element of one of the function's pointers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kscope.errors import UsageError
from kscope.instrument.selection import auto
from kscope.instrument.selection.auto import Lines, Selection
from kscope.instrument.selection.catalogue import Site

from .choosing import Chosen, Source, Span
from .functions import Function
from .statements import Block, Statement
from .tokens import UnreadableError
from .wrapping import wrap

_WORDS: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = tuple(
    (kinds, re.compile(words))
    for kinds, words in (
        (
            ("async_wait", "wait"),
            r"cp\.async\.wait|cp_async_wait|__pipeline_wait_prior|\bpipeline\w*_wait|consumer_wait",
        ),
        (("wait",), r"\.(?:try|test)_wait|wait_group|wait_all|wgmma\.wait|\w*wait\w*\s*\(|tcgen05\.wait"),
        (("tma",), r"cp\.async\.bulk|cp_async_bulk|cp_reduce_async|\btma_\w+\s*\(|memcpy_async"),
        (("wgmma", "dot"), r"wgmma|warpgroup_(?:mma|gemm)"),
        (("mma", "dot"), r"\bmma\.sync|\bmma_sync|tcgen05\.mma|wmma::mma"),
        (
            ("barrier",),
            r"__sync(?:threads|warp)|\bbar(?:rier)?\.|mbarrier\.arrive|\barrive\w*\s*\(|\.\s*sync\s*\(|_sync\s*\(",
        ),
    )
)
_ASSIGNMENTS = {"=", "+", "-", "*", "/", "%", "&", "|", "^", "<", ">"}


@dataclass(frozen=True)
class Found:
    """Statements that are marked, what for (a kind, or "lines"), and the lines of the loops around them."""

    chosen: Chosen
    what: str
    loops: tuple[int, ...]

    def site(self, source: Source) -> Site:
        """As the catalogue knows it."""
        span, name = self.chosen.span, self.chosen.span.of.file
        loops = tuple(f"{name}:{span.told(line)}" for line in self.loops)
        first = span.told(source.start(self.chosen.statements[0]))
        last = span.told(source.end(self.chosen.statements[-1]))
        where = f"{name}:{first}" if first == last else f"{name}:{first}-{last}"
        return Site(span.of.name, self.what, where, loops, operations=len(self.chosen.statements))


def by_kind(source: Source, selection: Selection) -> list[Found]:
    """Statements of the selected kinds that can be marked, in their order."""
    found: list[Found] = []
    for function in source.found:
        if function.constant or (function.kernel and not selection.of_kernel(function.name)):
            continue
        try:
            body = source.body(function)
        except UnreadableError:  # nothing can be said of it
            continue
        candidates = _Finder(source, selection, function).of(body, body, ())
        found += [one for one in candidates if _can_be_marked(source, one)]
    return found


def loops(source: Source, chosen: Chosen) -> tuple[int, ...]:
    """The lines of the loops around chosen statements, the outermost first."""
    first, last = chosen.statements[0], chosen.statements[-1]
    return tuple(
        source.start(one)
        for statement in source.body(chosen.function).statements
        for one in statement.walk()
        if one.sort == "loop" and one.key <= first.key and last.last <= one.last and one is not first
    )


def _can_be_marked(source: Source, found: Found) -> bool:
    try:
        wrap(source, [found.chosen])
    except UsageError:
        return False
    return True


@dataclass(frozen=True)
class _Finder:
    source: Source
    selection: Selection
    function: Function

    def of(self, block: Block, root: Block, loops: tuple[int, ...]) -> Iterator[Found]:
        for at, statement in enumerate(block.statements):
            kind = self.selection.kind(self._kinds(statement))
            if kind is not None:
                yield self._found(kind, statement, Chosen, root, block, at, at, loops)
            line = self.source.start(statement)
            inner = (*loops, line) if statement.sort == "loop" else loops
            for part in statement.blocks:
                if statement.sort == "loop" and part.statements and "iteration" in self.selection.kinds:
                    yield self._found("iteration", statement, Chosen, root, part, 0, len(part.statements) - 1, inner)
                yield from self.of(part, root, inner)

    def _found(
        self, kind: str, statement: Statement, made: type[Chosen], root: Block, block: Block, first: int, last: int,
        loops: tuple[int, ...],
    ) -> Found:  # fmt: skip
        line = self.source.start(statement)
        name = auto.name(kind, self.function.name, line)
        span = Span(Lines(name, self.function.name, line, self.source.end(statement), "auto"), line, line)
        return Found(made(span, self.function, root, block, first, last), kind, loops)

    def _kinds(self, statement: Statement) -> tuple[str, ...]:
        """The kinds of a statement, the narrowest first."""
        code = self.source.tokens.code
        if statement.sort == "loop":
            inner = min((one.first for part in statement.blocks for one in part.statements), default=statement.last)
            header = " ".join(token.text for token in code[statement.key : inner])
            return (*next((kinds for kinds, words in _WORDS[:2] if words.search(header)), ()), "loop")
        if statement.sort != "plain" or statement.bodies or statement.last < statement.key:
            return ()
        tokens = code[statement.key : statement.last + 1]
        text = self.source.tokens.source[tokens[0].start : tokens[-1].end]
        found = [kinds for kinds, words in _WORDS if words.search(text)]
        return tuple(kind for kinds in found for kind in kinds) + self._memory(statement)

    def _memory(self, statement: Statement) -> tuple[str, ...]:
        """Whether a statement writes an element of one of the function's pointers, or reads one."""
        code, partner = self.source.tokens.code, self.source.tokens.partners
        found = set[str]()
        for at in range(statement.key, statement.last):
            if code[at].kind == "word" and code[at].text in self.function.pointers and code[at + 1].text == "[":
                after = [code[place].text for place in range(partner[at + 1] + 1, min(partner[at + 1] + 3, len(code)))]
                written = after[0] == "=" != after[1] or (after[0] in _ASSIGNMENTS and after[1] == "=" != after[0])
                found.add("store" if written and at == statement.key else "load")
                if written and after[0] != "=":
                    found.add("load")
        return tuple(kind for kind in ("store", "load") if kind in found)
