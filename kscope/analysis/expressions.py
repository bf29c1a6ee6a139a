"""A small language for conditions: ``load.p99 < 2us and dropped == 0``.

condition := all ("or" all)*           all := one ("and" one)*         one := "not" one | comparison
comparison := sum ((< | <= | > | >= | == | !=) sum)+                   chains as in Python: 1us < load.p50 < 2us
sum := product (("+" | "-") product)*  product := atom (("*" | "/") atom)*
atom := number unit? | name ("." name)* | "-" atom | "(" sum ")" | "(" condition ")"
unit := ns | us | ms | s | %           name := letters, digits, _ | a hash, 0x7fa21c3 | "anything in quotes"
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import UsageError
from ..util.terminal import time_text

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>ns|us|ms|s|%)?(?![\w.])
      |(?P<name>[^\W\d]\w*|0[xX][0-9a-fA-F]+(?!\w))|"(?P<double>[^"]+)"|'(?P<single>[^']+)'|(?P<mark><=|>=|==|!=|[<>()+\-*/.]))""",
    re.X,
)
_UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "%": 0.01}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_WORDS = ("and", "or", "not")
_PLAIN = re.compile(r"[^\W\d]\w*")
_LONGEST, _DEEPEST = 2000, 40


@dataclass(frozen=True)
class Quantity:
    """A number, or a time in ns. NaN if unknown."""

    value: float
    time: bool = False

    def __str__(self) -> str:
        return time_text(self.value) if self.time else "-" if math.isnan(self.value) else f"{self.value:.6g}"


Lookup = Callable[[tuple[str, ...]], Quantity]
"""The value of a dotted name. Raises UsageError for an unknown name."""


@dataclass(frozen=True)
class Outcome:
    """The result of a condition.

    Attributes:
        text: the condition.
        holds: True if it holds.
        seen: the names in it with their values.
        unknown: parts with an unknown value (a name, or arithmetic such as x / 0); then the condition does not hold.
    """

    text: str
    holds: bool
    seen: tuple[tuple[str, Quantity], ...]
    unknown: tuple[str, ...] = ()


def evaluate(text: str, lookup: Lookup) -> Outcome:
    """Evaluate a condition. No Python is evaluated: only names are looked up.

    Raises:
        UsageError: a syntax error, with its position.
    """
    if len(text) > _LONGEST:
        raise UsageError(f"{text[:40]!r}...: {len(text)} characters, expected at most {_LONGEST}")
    parser = _Parser(text, _tokens(text), lookup)
    holds = parser.whole()
    return Outcome(text, holds and not parser.unknown, tuple(parser.seen.items()), tuple(dict.fromkeys(parser.unknown)))


def quoted_name(name: str) -> str:
    """A name in the syntax of conditions: quoted if necessary."""
    if all(_PLAIN.fullmatch(part) and part not in _WORDS for part in name.split(".")):
        return name
    return f"'{name}'" if '"' in name else f'"{name}"'


@dataclass(frozen=True)
class _Token:
    kind: str  # number, name, mark, end
    text: str
    at: int
    value: Quantity | None = None


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _refused(text, at + len(text[at:]) - len(text[at:].lstrip()), "no number, name or operator")
        start = match.end() - len(match[0].lstrip())
        if match["number"] is not None:
            unit = match["unit"]
            value = Quantity(float(match["number"]) * _UNITS.get(unit or "", 1.0), unit not in (None, "%"))
            found.append(_Token("number", match[0].strip(), start, value))
        elif match["mark"] is not None:
            found.append(_Token("mark", match["mark"], start))
        else:
            quoted = match["double"] or match["single"]
            word = match["name"]
            kind = "word" if word in _WORDS else "name"
            found.append(_Token(kind, quoted or word, start))
        at = match.end()
    return [*found, _Token("end", "", len(text))]


def _refused(text: str, at: int, why: str) -> UsageError:
    return UsageError(f"{text!r}: {why} at {text[at : at + 20]!r}" if at < len(text) else f"{text!r}: {why} at its end")


@dataclass
class _Parser:
    """Evaluates while parsing; both sides of `and` and `or` are parsed, so that every syntax error is found."""

    text: str
    tokens: list[_Token]
    lookup: Lookup
    at: int = 0
    depth: int = 0
    seen: dict[str, Quantity] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    def whole(self) -> bool:
        found = self.condition()
        self.expect("end", "", "an operator or the end")
        return found

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def take(self, kind: str, *texts: str) -> _Token | None:
        token = self.next
        if token.kind != kind or (texts and token.text not in texts):
            return None
        self.at += 1
        return token

    def expect(self, kind: str, text: str, what: str) -> None:
        if not self.take(kind, *([text] if text else [])):
            raise _refused(self.text, self.next.at, f"expected {what}")

    def condition(self, found: bool | None = None) -> bool:
        found = self.all() if found is None else found
        while self.take("word", "or"):
            found = self.all() or found
        return found

    def all(self, found: bool | None = None) -> bool:
        found = self.one() if found is None else found
        while self.take("word", "and"):
            found = self.one() and found
        return found

    def one(self) -> bool:
        if self.take("word", "not"):
            self.deeper()
            found = not self.one()
            self.depth -= 1
            return found
        return self.comparison(self.at, self.sum())

    def comparison(self, start: int, left: Quantity | bool) -> bool:
        if isinstance(left, bool):
            return left
        found, compared = True, False
        self.known(start, left)
        while token := self.take("mark", *_COMPARE):
            right = self.known(self.at, self.number(self.sum(), token))
            if left.time != right.time:
                raise self.mixed(token, left, right)
            found = _COMPARE[token.text](left.value, right.value) and found
            left, compared = right, True
        if not compared:
            raise _refused(self.text, self.tokens[start].at, "expected a comparison, such as load.p99 < 2us,")
        return found

    def known(self, start: int, value: Quantity) -> Quantity:
        """The value of the tokens from `start` on; noted if unknown."""
        if math.isnan(value.value):
            self.unknown.append(self.text[self.tokens[start].at : self.next.at].strip())
        return value

    def sum(self) -> Quantity | bool:
        left = self.product()
        while token := self.take("mark", "+", "-"):
            left, right = self.number(left, token), self.number(self.product(), token)
            if left.time != right.time:
                raise self.mixed(token, left, right)
            left = Quantity(left.value + (right.value if token.text == "+" else -right.value), left.time)
        return left

    def product(self) -> Quantity | bool:
        left = self.atom()
        while token := self.take("mark", "*", "/"):
            left, right = self.number(left, token), self.number(self.atom(), token)
            if token.text == "*":
                if left.time and right.time:
                    raise _refused(self.text, token.at, "a time times a time")
                left = Quantity(left.value * right.value, left.time or right.time)
            else:
                if right.time and not left.time:
                    raise _refused(self.text, token.at, "a number divided by a time")
                ratio = left.value / right.value if right.value else math.nan
                left = Quantity(ratio, left.time and not right.time)
        return left

    def atom(self) -> Quantity | bool:
        token = self.next
        if self.take("number") and token.value is not None:
            return token.value
        if self.take("mark", "-"):
            self.deeper()
            found = self.number(self.atom(), token)
            self.depth -= 1
            return Quantity(-found.value, found.time)
        if self.take("mark", "("):
            return self.bracket()
        if self.take("name"):
            return self.name(token)
        raise _refused(self.text, token.at, "expected a number, a name or a bracket")

    def bracket(self) -> Quantity | bool:
        """A sum in brackets, or a condition; its end decides which."""
        self.deeper()
        start, inside = self.at, None
        if self.next.kind != "word":
            inside = self.sum()
        if inside is None or self.next.text != ")":
            first = None if inside is None else self.all(self.comparison(start, inside))
            inside = self.condition(first)
        self.expect("mark", ")", "a closing bracket")
        self.depth -= 1
        return inside

    def name(self, first: _Token) -> Quantity:
        parts = [first.text]
        while self.take("mark", "."):
            token = self.take("name") or self.take("word")
            if token is None:
                raise _refused(self.text, self.next.at, "expected a name after the dot")
            parts.append(token.text)
        value = self.lookup(tuple(parts))
        self.seen[".".join(parts)] = value
        return value

    def number(self, value: Quantity | bool, token: _Token) -> Quantity:
        if isinstance(value, bool):
            raise _refused(self.text, token.at, "a condition where a number should be")
        return value

    def mixed(self, token: _Token, left: Quantity, right: Quantity) -> UsageError:
        plain = right if left.time else left
        return _refused(
            self.text, token.at, f"a time does not compare or add to the plain number {plain}; with a unit: {plain}us,"
        )

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _refused(self.text, self.next.at, f"more than {_DEEPEST} nested brackets")
