"""Maps a range of lines to statements. The range includes each simple statement that it overlaps, and each loop or
branch that it covers completely; a range inside a loop's body means statements of that body.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kscope.errors import UsageError
from kscope.instrument.selection.auto import Lines

from .functions import Function, functions
from .statements import Block, Reader, Statement
from .tokens import Token, Tokens, UnreadableError

_NEUTRAL = {"{", "}", "else"}
"""Tokens that may be inside or outside of a range."""
_NAMES = {"loop": "the loop", "if": "the if", "switch": "the switch", "block": "the block", "macro": "the block"}


@dataclass(frozen=True)
class LineRange:
    """Lines of a source: as the user selected them, and as counted in the source's text (first, last)."""

    selected: Lines
    first: int
    last: int

    def __str__(self) -> str:
        return str(self.selected)

    def error(self, reason: str) -> UsageError:
        """An error that names the region."""
        return UsageError(f"region {self.selected}: {reason}")

    def unreadable(self, name: str, error: UnreadableError) -> UsageError:
        """An error for a source or function that cannot be parsed."""
        line = self.user_line(error.line)
        return self.error(f"{name} cannot be read: line {line}: {error}; macros or #if may hide half of a pair")

    def user_line(self, line: int) -> int:
        """A line of the source as the user counts."""
        return line + self.selected.first - self.first


@dataclass(frozen=True)
class StatementRange:
    """Statements first to last of a block; root is the body, of the function or of a lambda, that a return leaves."""

    lines: LineRange
    function: Function
    root: Block
    block: Block
    first: int
    last: int

    @property
    def statements(self) -> list[Statement]:
        """The statements of the region."""
        return self.block.statements[self.first : self.last + 1]


@dataclass
class Source:
    """A parsed source."""

    tokens: Tokens
    functions: tuple[Function, ...]
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
        """The first line of a statement."""
        return self.tokens.line(self.tokens.code[statement.keyword].start)

    def end(self, statement: Statement) -> int:
        """The last line of a statement."""
        return self.tokens.line(self.tokens.code[statement.last].end - 1)


def statements_in(source: Source, lines: LineRange) -> StatementRange | None:
    """The statements of these lines; None if they contain none of a function. Raises UsageError."""
    found: list[StatementRange] = []
    for function in source.functions:
        if function.lines[0] > lines.last or function.lines[1] < lines.first:
            continue
        try:
            body = source.body(function)
        except UnreadableError as error:
            raise lines.unreadable(function.name, error) from None
        statements = _RangeFinder(source, lines, function).find(body, body)
        if statements is not None:
            found.append(statements)
    if len(found) > 1:
        names = " and ".join(one.function.name for one in found[:2])
        raise lines.error(f"the lines contain statements of {names}: a region begins and ends in one function")
    if found and found[0].function.constant:
        raise lines.error(f"{found[0].function.name} is constexpr, and cannot contain assembly: select a call of it")
    return found[0] if found else None


@dataclass(frozen=True)
class _RangeFinder:
    source: Source
    lines: LineRange
    function: Function

    def find(self, block: Block, root: Block) -> StatementRange | None:
        inside = [at for at, statement in enumerate(block.statements) if any(map(self._in, self._tokens(statement)))]
        if not inside:
            return None
        first, last = inside[0], inside[-1]
        for at in (first, last):
            statement = block.statements[at]
            if not self._whole(statement):
                if first != last:
                    raise self._cut(statement)
                return self._within(block, at, root)
        return StatementRange(self.lines, self.function, root, block, first, last)

    def _within(self, block: Block, at: int, root: Block) -> StatementRange | None:
        """For lines that contain a part of one statement with nested statements."""
        statement = block.statements[at]
        header = any(map(self._in, self._header(statement)))
        found = []
        if not header:
            found = [one for part in statement.blocks if (one := self.find(part, root)) is not None]
            found += [one for part in statement.bodies if (one := self.find(part, part)) is not None]
        if len(found) == 1:
            return found[0]
        if not header and not found:
            return None
        if statement.blocks:
            raise self._cut(statement)
        return StatementRange(self.lines, self.function, root, block, at, at)  # a call with a lambda argument

    def _tokens(self, statement: Statement) -> list[Token]:
        code = self.source.tokens.code[statement.keyword : statement.last + 1]
        return [token for token in code if token.text not in _NEUTRAL]

    def _header(self, statement: Statement) -> list[Token]:
        """The tokens of a statement outside its nested statements."""
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
            for at in range(statement.keyword, statement.last + 1)
            if at not in inner and code[at].text not in _NEUTRAL | ends
        ]

    def _whole(self, statement: Statement) -> bool:
        return not (statement.blocks or statement.bodies) or all(map(self._in, self._tokens(statement)))

    def _in(self, token: Token) -> bool:
        line = self.source.tokens.line
        return line(token.start) <= self.lines.last and line(token.end - 1) >= self.lines.first

    def _cut(self, statement: Statement) -> UsageError:
        first, last = map(self.lines.user_line, (self.source.start(statement), self.source.end(statement)))
        name = _NAMES.get(statement.kind, "the statement")
        return self.lines.error(
            f"the lines cut through {name} at lines {first} to {last}: select all of it, or statements inside it"
        )
