"""A source with marks around the statements of some lines, on the same lines as before.

    x = a[i];                    asm volatile("//kscope enter load - - with" ::: "memory"); x = a[i];
    if (x < 0) return;           if (x < 0) { asm volatile("//kscope exit load ..." ...); return; }
    y = b[i];                    y = b[i]; asm volatile("//kscope exit load - - with" ::: "memory");

A mark is a statement, and takes no names and no scope: what the lines declare is there after them. No line moves, so
messages and line information stay right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kscope.marks.grammar import Act, Mark

from .choosing import Chosen, Source
from .leaving import jumps
from .statements import Statement
from .tokens import Token

_LINE = re.compile(r'#\s*(?:line\s+)?(\d+)\b\s*(?:"([^"]*)")?')
_CONDITION = re.compile(r"#\s*(?:(if|ifdef|ifndef|endif|else|elif|elifdef|elifndef)\b|(pragma)\b)")
_LATE = 1 << 30


@dataclass(frozen=True)
class _Put:
    """A piece of text, and its place: at one offset what closes comes first, and then by `order`."""

    offset: int
    opens: bool
    order: int
    text: str


def wrap(source: Source, found: Sequence[Chosen]) -> str:
    """The source's text with marks around these statements. Of two with the same ones, the first is outside.
    Raises UsageError, which names the region and the line of what is in its way."""
    code = source.tokens.code
    ordered = sorted(found, key=lambda one: (code[one.statements[0].first].start, -code[one.statements[-1].last].end))
    puts: list[_Put] = []
    left: dict[int, tuple[Statement, list[str]]] = {}
    for order, one in enumerate(ordered):
        puts += _around(source, one, order)
        for jump in jumps(source, one):
            left.setdefault(id(jump), (jump, []))[1].insert(0, _mark("exit", one))
    for jump, exits in left.values():
        puts += _before(source, jump, " ".join(exits))
    return _written(source.tokens.source, puts)


def _mark(act: Act, chosen: Chosen) -> str:
    return f'asm volatile("{Mark(act, chosen.span.of.name, how=chosen.span.of.origin).comment()}" ::: "memory");'


def _around(source: Source, chosen: Chosen, order: int) -> list[_Put]:
    first, last = chosen.statements[0], chosen.statements[-1]
    code = source.tokens.code
    begin, end = code[first.first].start, code[last.last].end
    opening, closing = _mark("enter", chosen), _mark("exit", chosen)
    if last.sort in ("return", "break", "continue", "goto"):
        closing = ""  # the jump has it
    if not chosen.block.braced:
        opening, closing = f"{{ {opening}", f"{closing} }}"
    pragma = _pragma(source, first)
    if source.tokens.branch(begin) != source.tokens.branch(end - 1) or (
        pragma is not None and source.tokens.branch(pragma.start) != source.tokens.branch(begin)
    ):
        raise chosen.span.refused("the lines begin and end in different branches of #if: take whole branches")
    if pragma is None:
        return [_Put(begin, True, order, f"{opening} "), _Put(end, False, -order, f" {closing}" if closing else "")]
    lines = _Presumed.of(source)
    opening = f"\n#line {lines.of_offset(begin)}\n{opening}\n#line {lines.of_offset(pragma.start)}\n"
    closed = _Put(end, False, -order, f" {closing}" if closing else "")
    return [_Put(pragma.start, True, order, opening), closed, *_counted(source, begin, lines)]


def _counted(source: Source, offset: int, lines: _Presumed) -> Iterator[_Put]:
    """Behind each branch of #if around this place, and at its end, the number of the line: the new lines in a branch
    count also where the #line in it does not."""
    depth = len(source.tokens.branch(offset))
    for directive in source.tokens.directives:
        found = _CONDITION.match(directive.text) if directive.start > offset and depth else None
        if found is None or not found[1]:
            continue
        depth += found[1].startswith("if") - (found[1] == "endif")
        if not found[1].startswith("if"):
            yield _Put(directive.end, False, _LATE, f"\n#line {lines.of_offset(directive.end) + 1}")


def _pragma(source: Source, first: Statement) -> Token | None:
    """The directive before which a mark stands where a #pragma is meant for the first statement: it stays at it."""
    code = source.tokens.code
    after = code[first.first - 1].end if first.first else 0
    gap = [one for one in source.tokens.directives if after <= one.start < code[first.first].start]
    for at in range(len(gap)):
        depth, words = 0, [_CONDITION.match(one.text) for one in gap[at:]]
        for word in (found[1] or "" for found in words if found is not None):
            depth += word.startswith("if") - (word == "endif")
            if depth < 0 or (depth == 0 and word.startswith("el")):
                break
        else:
            if depth == 0 and any(found is not None and found[2] for found in words):
                return gap[at]
    return None


def _before(source: Source, jump: Statement, exits: str) -> list[_Put]:
    """What is written around a jump that leaves regions. The value that a return computes still belongs to them."""
    code = source.tokens.code
    begin, end = code[jump.key].start, code[jump.last].end
    if jump.sort == "return" and jump.last > jump.key + 1:
        leaving = (
            f"struct kscope_leaving_ {{ __device__ __forceinline__ ~kscope_leaving_() {{ {exits} }} }} kscope_left_;"
        )
    else:
        leaving = exits
    return [_Put(begin, True, _LATE, f"{{ {leaving} "), _Put(end, False, -_LATE, " }")]


def _written(text: str, puts: Sequence[_Put]) -> str:
    out, at = [], 0
    for put in sorted(dict.fromkeys(puts), key=lambda one: (one.offset, one.opens, one.order)):
        out += [text[at : put.offset], put.text]
        at = put.offset
    return "".join([*out, text[at:]])


@dataclass(frozen=True)
class _Presumed:
    """Line numbers as #line directives of the source's own say: (first line that it holds for, its number)."""

    source: Source
    told: tuple[tuple[int, int], ...]

    @staticmethod
    def of(source: Source) -> _Presumed:
        told = []
        for directive in source.tokens.directives:
            found = _LINE.fullmatch(directive.text.strip())
            if found is not None:
                told.append((source.tokens.line(directive.end) + 1, int(found[1])))
        return _Presumed(source, tuple(told))

    def of_offset(self, offset: int) -> int:
        line = self.source.tokens.line(offset)
        first, number = next((one for one in reversed(self.told) if one[0] <= line), (1, 1))
        return number + line - first
