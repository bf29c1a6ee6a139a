"""Parses the statements of a C++ function: blocks, loops, branches, jumps and labels, with their tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from .tokens import Tokens, UnreadableError

StatementKind = Literal["plain", "block", "if", "loop", "switch", "return", "break", "continue", "goto", "macro"]
"""plain: an expression or declaration. macro: a macro with a block."""
JUMPS = ("return", "break", "continue", "goto")
_HEADED: dict[str, StatementKind] = {"for": "loop", "while": "loop", "switch": "switch", "if": "if"}
_BEGIN = {*JUMPS, *_HEADED, "do", "else", "case", "default"}
_PREFIXED = {*JUMPS, *_HEADED, "do"}
_AFTER_BLOCK = {*";,)].([?=+-*/<>&|^%!", "->"}
_QUALIFIERS = {"mutable", "noexcept", "constexpr", "__device__", "__host__", "__forceinline__", "const"}
_OPAQUE = {"struct", "class", "union", "enum"}


@dataclass(frozen=True)
class Label:
    """A label before a statement: `case`, `default`, or the target of a goto. at: its first token."""

    name: str
    at: int


@dataclass
class Statement:
    """One statement: tokens first to last, without labels. keyword: its first token after attributes and macros, `for`
    in `UNROLL for (...)`. target: of a goto. blocks: nested statements; bodies: those of lambdas in it."""

    kind: StatementKind
    keyword: int
    last: int
    first: int = -1
    labels: list[Label] = field(default_factory=list)
    target: str = ""
    blocks: list[Block] = field(default_factory=list)
    bodies: list[Block] = field(default_factory=list)

    def walk(self) -> Iterator[Statement]:
        """This statement and those nested in it, without lambdas."""
        yield self
        for block in self.blocks:
            for statement in block.statements:
                yield from statement.walk()


@dataclass
class Block:
    """A sequence of statements; braced if it is in braces."""

    statements: list[Statement]
    braced: bool


class Reader:
    """Parses statements by their punctuation: an expression or declaration extends to its semicolon.

    Keywords inside macros are not seen; a block after a macro (`EACH(i, n) { ... }`) is. Raises UnreadableError for
    text that is not C++.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens, self._code, self._partner = tokens, tokens.code, tokens.partners

    def block(self, at: int) -> Block:
        """The statements between the brace at this token and its partner."""
        end, found = self._partner[at], []
        at += 1
        while at < end:
            statement = self._statement(at, end)
            found.append(statement)
            at = statement.last + 1
        return Block(found, True)

    def _text(self, at: int) -> str:
        token = self._code[at] if at < len(self._code) else None
        return token.text if token is not None and token.kind in ("identifier", "punctuation") else ""

    def _statement(self, at: int, end: int) -> Statement:
        labels: list[Label] = []
        while (after := self._label(at, end, labels)) is not None:
            at = after
        if at >= end:  # labels at the end of a block
            return Statement("plain", at, at - 1, at, labels)
        statement = self._read(self._skip_prefix(at, end), end)
        statement.first, statement.labels = at, labels
        return statement

    def _skip_prefix(self, at: int, end: int) -> int:
        """The token after attributes, _Pragma(...), and macros before a loop, branch or jump."""
        while True:
            after = at
            if self._text(at) == "[" and self._text(at + 1) == "[":
                after = self._partner[at] + 1
            elif self._code[at].kind == "identifier" and self._text(at) not in _BEGIN | {"asm", "__asm__", "sizeof"}:
                after = at + 1 if self._text(at + 1) != "(" else self._partner[at + 1] + 1
                pragma = self._text(at) in ("_Pragma", "__pragma")
                after = after if after < end and (pragma or self._text(after) in _PREFIXED) else at
            if after == at or after >= end:
                return at
            at = after

    def _label(self, at: int, end: int, labels: list[Label]) -> int | None:
        keyword = self._text(at)
        if keyword == "case":
            questions, place = 0, at + 1
            while place < end:
                text = self._text(place)
                if text in ("(", "[", "{"):
                    place = self._partner[place]
                elif text == "?":
                    questions += 1
                elif text == ":" and questions == 0:
                    labels.append(Label("case", at))
                    return place + 1
                elif text == ":":
                    questions -= 1
                place += 1
            raise self._error(at, "this case has no colon")
        if (
            at + 1 < end
            and self._code[at].kind == "identifier"
            and self._text(at + 1) == ":"
            and keyword not in _BEGIN - {"default"}
        ):
            labels.append(Label(keyword, at))
            return at + 2
        return None

    def _read(self, at: int, end: int) -> Statement:
        keyword = self._text(at)
        if keyword == "{":
            return Statement("block", at, self._partner[at], blocks=[self.block(at)])
        if keyword in _HEADED:
            return self._headed(at, end)
        if keyword == "do":
            return self._do(at, end)
        if keyword in JUMPS:
            last = self._semicolon(at, end)
            target = self._text(at + 1) if keyword == "goto" else ""
            jump = Statement(keyword, at, last, target=target)  # type: ignore[arg-type]  # jumps are kinds
            jump.bodies = self._bodies(at, last)
            return jump
        if keyword in ("else", "try", "catch", "co_return", "co_yield"):
            raise self._error(at, f"{keyword!r} cannot be read here")
        return self._plain(at, end)

    def _headed(self, at: int, end: int) -> Statement:
        keyword, place = self._text(at), at + 1
        while self._code[place].kind == "identifier" and place < end:  # if constexpr
            place += 1
        if self._text(place) != "(":
            raise self._error(at, f"this {keyword} has no (")
        header = self._partner[place]
        bodies = self._bodies(place + 1, header - 1)
        inner = self._inner(header + 1, end)
        blocks, last = [inner[0]], inner[1]
        if keyword == "if" and self._text(last + 1) == "else" and last + 1 < end:
            other, last = self._inner(last + 2, end)
            blocks.append(other)
        return Statement(_HEADED[keyword], at, last, blocks=blocks, bodies=bodies)

    def _do(self, at: int, end: int) -> Statement:
        block, last = self._inner(at + 1, end)
        if self._text(last + 1) != "while":
            raise self._error(at, "this do has no while")
        return Statement("loop", at, self._semicolon(last + 1, end), blocks=[block])

    def _inner(self, at: int, end: int) -> tuple[Block, int]:
        """The block of a loop or branch, and its last token."""
        if at >= end:
            raise self._error(at - 1, "a statement is missing here")
        statement = self._statement(at, end)
        if statement.kind == "block" and not statement.labels and self._text(at) == "{":
            return statement.blocks[0], statement.last
        return Block([statement], False), statement.last

    def _semicolon(self, at: int, end: int) -> int:
        """The semicolon that ends the statement."""
        place = at
        while place < end:
            text = self._text(place)
            if text == ";":
                return place
            place = self._partner[place] + 1 if text in ("(", "[", "{") else place + 1
        raise self._error(at, "this statement has no semicolon")

    def _plain(self, at: int, end: int) -> Statement:
        """An expression or declaration, to its semicolon, which a macro may lack."""
        place, opaque = at, self._text(at) in _OPAQUE
        while place < end:
            text = self._text(place)
            if text == ";":
                return self._simple(at, place)
            if text in _BEGIN and place > at and self._text(place - 1) == "}":
                return self._simple(at, place - 1)  # after a macro without a semicolon
            if text == "{" and not opaque and self._is_macro_block(at, place):
                return Statement("macro", at, self._partner[place], blocks=[self.block(place)])
            opaque = opaque or text in _OPAQUE
            place = self._partner[place] + 1 if text in ("(", "[", "{") else place + 1
        return self._simple(at, end - 1)

    def _simple(self, at: int, last: int) -> Statement:
        return Statement("plain", at, last, bodies=self._bodies(at, last))

    def _is_macro_block(self, at: int, brace: int) -> bool:
        """True if NAME(...) { ... } or NAME { ... } is a whole statement."""
        partner = self._partner[brace]
        head_ends = brace - 1
        if self._text(head_ends) == ")":
            head_ends = self._partner[head_ends] - 1
        return head_ends == at and self._code[at].kind == "identifier" and self._text(partner + 1) not in _AFTER_BLOCK

    def _bodies(self, at: int, last: int) -> list[Block]:
        """Bodies of the outermost lambdas between two tokens."""
        found: list[Block] = []
        while at <= last:
            if self._text(at) == "[" and self._text(at + 1) != "[" and not self._is_value(at - 1):
                brace = self._lambda(self._partner[at] + 1, last)
                if brace is not None:
                    found.append(self.block(brace))
                    at = self._partner[brace]
            at += 1
        return found

    def _is_value(self, at: int) -> bool:
        """True if a subscript may follow this token."""
        token = self._code[at]
        return (
            token.text in (")", "]")
            or token.kind in ("number", "string")
            or (token.kind == "identifier" and token.text not in ("return", "case", "else", "do"))
        )

    def _lambda(self, at: int, last: int) -> int | None:
        """The brace that opens the body of a lambda, from the token after its captures."""
        if self._text(at) == "(":
            at = self._partner[at] + 1
        while at <= last and self._text(at) != "{":
            text = self._text(at)
            if text in _QUALIFIERS and self._text(at + 1) == "(":
                at = self._partner[at + 1]
            elif text in (";", ")", "]", "}", ",", "=", "?") or (self._code[at].kind in ("number", "string")):
                return None
            elif text in ("(", "["):
                at = self._partner[at]
            at += 1
        return at if at <= last else None

    def _error(self, at: int, why: str) -> UnreadableError:
        return UnreadableError(self._tokens.line(self._code[at].start), why)
