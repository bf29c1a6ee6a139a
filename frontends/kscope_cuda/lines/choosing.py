"""From a range of lines to the statements that it means.

A statement that the range holds a part of belongs to it, where it has no statements of its own. A loop or a branch
belongs to it with all of its lines; a range in a loop's body means statements of that body.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kscope.errors import UsageError
from kscope.instrument.selection.auto import Lines

from .functions import Function, functions
from .statements import Block, Reader, Statement
from .tokens import Token, Tokens, UnreadableError

_NEUTRAL = {"{", "}", "else"}
"""What may lie in a range, or outside of it, without a difference."""
_WORDS = {"loop": "the loop", "if": "the if", "switch": "the switch", "block": "the block", "macro": "the block"}


@dataclass(frozen=True)
class Span:
    """Lines of a source that a selection asks for: of: as the user knows them; first, last: in the source's text."""

    of: Lines
    first: int
    last: int

    def refused(self, why: str) -> UsageError:
        """The error that names the region."""
        return UsageError(f"region {self.of}: {why}")

    def told(self, line: int) -> int:
        """The number of one of the source's lines as the user counts."""
        return line + self.of.first - self.first


@dataclass(frozen=True)
class Chosen:
    """Statements first to last of a block. root: what a return in them leaves, the function's body or a lambda's."""

    span: Span
    function: Function
    root: Block
    block: Block
    first: int
    last: int

    @property
    def statements(self) -> list[Statement]:
        """Those that are the region."""
        return self.block.statements[self.first : self.last + 1]


@dataclass
class Source:
    """A source that is read."""

    tokens: Tokens
    found: tuple[Function, ...]
    _bodies: dict[int, Block] = field(default_factory=dict)

    @staticmethod
    def of(text: str) -> Source:
        """Raises UnreadableError."""
        tokens = Tokens.of(text)
        return Source(tokens, functions(tokens))

    def body(self, function: Function) -> Block:
        """Raises UnreadableError."""
        if function.brace not in self._bodies:
            self._bodies[function.brace] = Reader(self.tokens).block(function.brace)
        return self._bodies[function.brace]

    def start(self, statement: Statement) -> int:
        """The line at which a statement begins."""
        return self.tokens.line(self.tokens.code[statement.key].start)

    def end(self, statement: Statement) -> int:
        """The line on which a statement ends."""
        return self.tokens.line(self.tokens.code[statement.last].end - 1)


def nested(spans: Iterable[Span]) -> list[Span]:
    """Sorted so that a range comes before those that lie in it. Raises UsageError where two only overlap."""
    ordered = sorted(spans, key=lambda one: (one.first, -one.last))
    for at, one in enumerate(ordered):
        for later in ordered[at + 1 :]:
            if one.first < later.first <= one.last < later.last:
                raise UsageError(f"regions {one.of} and {later.of} overlap: one may lie in the other, or behind it")
    return ordered


def choose(source: Source, span: Span) -> Chosen | None:
    """What the lines mean in this source; None where they hold no statement of a function. Raises UsageError."""
    found: list[Chosen] = []
    for function in source.found:
        if function.lines[0] > span.last or function.lines[1] < span.first:
            continue
        try:
            body = source.body(function)
        except UnreadableError as error:
            raise span.refused(
                f"{function.name} cannot be read: line {span.told(error.line)}: {error}; macros and branches of #if "
                "may hide what belongs together"
            ) from None
        chosen = _Choice(source, span, function).of(body, body)
        if chosen is not None:
            found.append(chosen)
    if len(found) > 1:
        names = " and ".join(one.function.name for one in found[:2])
        raise span.refused(f"the lines hold statements of {names}: a region begins and ends in one function")
    if found and found[0].function.constant:
        raise span.refused(f"{found[0].function.name} is constexpr, and may hold no assembly: take the call of it")
    return found[0] if found else None


@dataclass(frozen=True)
class _Choice:
    source: Source
    span: Span
    function: Function

    def of(self, block: Block, root: Block) -> Chosen | None:
        inside = [at for at, statement in enumerate(block.statements) if any(map(self._in, self._own(statement)))]
        if not inside:
            return None
        first, last = inside[0], inside[-1]
        for at in (first, last):
            statement = block.statements[at]
            if not self._whole(statement):
                if first != last:
                    raise self._cut(statement)
                return self._within(block, at, root)
        return Chosen(self.span, self.function, root, block, first, last)

    def _within(self, block: Block, at: int, root: Block) -> Chosen | None:
        """For lines that hold a part of one statement, which has statements of its own."""
        statement = block.statements[at]
        header = any(map(self._in, self._header(statement)))
        found = []
        if not header:
            found = [one for part in statement.blocks if (one := self.of(part, root)) is not None]
            found += [one for part in statement.bodies if (one := self.of(part, part)) is not None]
        if len(found) == 1:
            return found[0]
        if not header and not found:
            return None
        if statement.blocks:
            raise self._cut(statement)
        return Chosen(self.span, self.function, root, block, at, at)  # a call that a lambda is handed to

    def _own(self, statement: Statement) -> list[Token]:
        code = self.source.tokens.code[statement.key : statement.last + 1]
        return [token for token in code if token.text not in _NEUTRAL]

    def _header(self, statement: Statement) -> list[Token]:
        """The tokens of a statement that are not in the statements in it."""
        inner = {
            at
            for block in (*statement.blocks, *statement.bodies)
            for one in block.statements
            for at in range(one.labels[0].at if one.labels else one.first, one.last + 1)
        }
        code = self.source.tokens.code
        ends = {";", ")"} if not statement.blocks else set[str]()
        return [
            code[at]
            for at in range(statement.key, statement.last + 1)
            if at not in inner and code[at].text not in _NEUTRAL | ends
        ]

    def _whole(self, statement: Statement) -> bool:
        return not (statement.blocks or statement.bodies) or all(map(self._in, self._own(statement)))

    def _in(self, token: Token) -> bool:
        line = self.source.tokens.line
        return line(token.start) <= self.span.last and line(token.end - 1) >= self.span.first

    def _cut(self, statement: Statement) -> UsageError:
        first, last = self.span.told(self.source.start(statement)), self.span.told(self.source.end(statement))
        what = _WORDS.get(statement.sort, "the statement")
        return self.span.refused(
            f"the lines cut through {what} at lines {first} to {last}: take all of it, or statements of one block in it"
        )
