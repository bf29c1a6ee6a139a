"""Splits C++ into tokens: identifiers, numbers, strings, punctuation and directives, without comments and spaces."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Kind = Literal["identifier", "number", "string", "punctuation", "directive"]
_SPLICE = r"\\[ \t]*\r?\n"
_TOKEN = re.compile(
    rf"""
    (?P<space>   (?: \s | {_SPLICE} | //(?: {_SPLICE} | [^\n] )* | /\*.*?\*/ )+ )
  | (?P<raw>     (?: u8 | u | U | L )? R"(?P<delimiter>[^ ()\\\t\v\f\n]{{0,16}})\( .*? \)(?P=delimiter)" )
  | (?P<string>  (?: u8 | u | U | L )? (?: "(?: \\. | [^"\\\n] )*" | '(?: \\. | [^'\\\n] )*' ) )
  | (?P<number>  \.? [0-9] (?: [eEpP][+-] | '[0-9A-Za-z_] | [0-9A-Za-z_.] )* )
  | (?P<identifier> (?: [^\W\d] | \$ ) [\w$]* )
  | (?P<other>   <% | %> | <:(?!:[^:>]) | :> | \[\[ | \]\] | -> | :: | \.\.\. | . )
    """,
    re.X | re.S,
)
_DIRECTIVE = re.compile(rf"\#(?: {_SPLICE} | /\*.*?\*/ | //(?: {_SPLICE} | [^\n] )* | [^\n] )*", re.X | re.S)
_SPELLING = {"<%": "{", "%>": "}", "<:": "[", ":>": "]"}
_KINDS: dict[str, Kind] = {
    "raw": "string", "string": "string", "number": "number", "identifier": "identifier", "other": "punctuation",
}  # fmt: skip
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_CONDITION = re.compile(r"#\s*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b")


class UnreadableError(Exception):
    """Text that cannot be read as C++; with the reason and the line."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True)
class Token:
    """One token: kind, text (digraphs replaced by punctuation), and offsets in the source."""

    kind: Kind
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Tokens:
    """A source's tokens in order; `code` is without directives."""

    source: str
    code: tuple[Token, ...]
    directives: tuple[Token, ...]

    @staticmethod
    def of(source: str) -> Tokens:
        """Raises UnreadableError."""
        code: list[Token] = []
        directives: list[Token] = []
        for token in _scan(source):
            (directives if token.kind == "directive" else code).append(token)
        return Tokens(source, tuple(code), tuple(directives))

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.source))]

    def line(self, offset: int) -> int:
        """The line of an offset, counted from 1."""
        return bisect_right(self._starts, offset)

    @cached_property
    def partners(self) -> dict[int, int]:
        """The partner of each bracket, both as indices into `code`. Raises UnreadableError."""
        found: dict[int, int] = {}
        opened: list[int] = []
        for at, token in enumerate(self.code):
            if token.kind != "punctuation":
                continue
            if token.text in _PAIRS:
                opened.append(at)
            elif token.text in ")]}":
                if not opened or _PAIRS[self.code[opened[-1]].text] != token.text:
                    raise UnreadableError(self.line(token.start), f"{token.text!r} closes nothing here")
                found[opened[-1]], found[at] = at, opened[-1]
                opened.pop()
        if opened:
            token = self.code[opened[-1]]
            raise UnreadableError(self.line(token.start), f"{token.text!r} is never closed")
        return found

    @cached_property
    def _branches(self) -> tuple[list[int], list[tuple[int, ...]]]:
        starts = [0]
        inside: list[tuple[int, ...]] = [()]
        stack: list[int] = []
        for number, token in enumerate(self.directives):
            found = _CONDITION.match(token.text)
            if found is None:
                continue
            if found[1] in ("if", "ifdef", "ifndef"):
                stack.append(number)
            elif found[1] == "endif":
                stack[-1:] = []
            elif stack:
                stack[-1] = number
            starts.append(token.start)
            inside.append(tuple(stack))
        return starts, inside

    def branch(self, offset: int) -> tuple[int, ...]:
        """The branches of #if that contain an offset: equal for two offsets that are compiled together."""
        starts, inside = self._branches
        return inside[bisect_right(starts, offset) - 1]


def _scan(source: str) -> Iterator[Token]:
    at, fresh = 0, True  # only space precedes on the line
    while at < len(source):
        if source[at] == "#" and fresh:
            found = _DIRECTIVE.match(source, at)
            assert found is not None
            yield Token("directive", found[0], at, found.end())
            at = found.end()
            continue
        found = _TOKEN.match(source, at)
        assert found is not None  # the last alternative matches anything
        at = found.end()
        kind = found.lastgroup or ""
        if kind == "space":
            fresh = fresh or "\n" in re.sub(_SPLICE, "", found[0])
            continue
        fresh = False
        text = found[0]
        if kind == "delimiter":  # the last group that matched, in a raw string
            kind = "raw"
        if kind == "other" and text in "\"'":
            raise UnreadableError(source.count("\n", 0, found.start()) + 1, f"{text} starts a string that does not end")
        if text in ("[[", "]]"):  # an attribute, or nested subscripts
            half = found.start() + 1
            yield Token("punctuation", text[0], found.start(), half)
            yield Token("punctuation", text[0], half, at)
            continue
        yield Token(_KINDS[kind], _SPELLING.get(text, text), found.start(), at)
