"""Inserts marks around statements, without moving a line.

x = a[i];                    asm volatile("//kscope enter load - - with" ::: "memory"); x = a[i];
if (x < 0) return;           if (x < 0) { asm volatile("//kscope exit load ..." ...); return; }
y = b[i];                    y = b[i]; asm volatile("//kscope exit load - - with" ::: "memory");
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kscope.marks.grammar import Act, Mark

from .jumps import jumps
from .ranges import Source, StatementRange
from .statements import JUMPS, Statement
from .tokens import Token

_LINE = re.compile(r'#\s*(?:line\s+)?(\d+)\b\s*(?:"([^"]*)")?')
_CONDITION = re.compile(r"#\s*(?:(if|ifdef|ifndef|endif|else|elif|elifdef|elifndef)\b|(pragma)\b)")
_INNERMOST = 1 << 30


@dataclass(frozen=True)
class _Insertion:
    """Text to insert at an offset; closing text comes first, then by `order`."""

    offset: int
    opens: bool
    order: int
    text: str


def insert_marks(source: Source, regions: Sequence[StatementRange]) -> str:
    """The source with marks around these statements; of two equal ranges the first is outside.

    Declarations in a region stay visible after it, and line numbers stay valid.

    Raises UsageError, which names the region and the line, if they cannot be marked.
    """
    code = source.tokens.code
    ordered = sorted(regions, key=lambda one: (code[one.statements[0].first].start, -code[one.statements[-1].last].end))
    insertions: list[_Insertion] = []
    left: dict[int, tuple[Statement, list[str]]] = {}
    for order, one in enumerate(ordered):
        insertions += _around(source, one, order)
        for jump in jumps(source, one):
            left.setdefault(id(jump), (jump, []))[1].insert(0, _mark("exit", one))
    for jump, exits in left.values():
        insertions += _around_jump(source, jump, " ".join(exits))
    return _apply(source.tokens.source, insertions)


def _mark(act: Act, region: StatementRange) -> str:
    lines = region.lines.selected
    return f'asm volatile("{Mark(act, lines.name, how=lines.origin).comment()}" ::: "memory");'


def _around(source: Source, region: StatementRange, order: int) -> list[_Insertion]:
    first, last = region.statements[0], region.statements[-1]
    code = source.tokens.code
    begin, end = code[first.first].start, code[last.last].end
    opening, closing = _mark("enter", region), _mark("exit", region)
    if last.kind in JUMPS:
        closing = ""  # before the jump
    if not region.block.braced:
        opening, closing = f"{{ {opening}", f"{closing} }}"
    pragma = _pragma(source, first)
    if source.tokens.branch(begin) != source.tokens.branch(end - 1) or (
        pragma is not None and source.tokens.branch(pragma.start) != source.tokens.branch(begin)
    ):
        raise region.lines.error("the lines begin and end in different branches of #if: select whole branches")
    close = _Insertion(end, False, -order, f" {closing}" if closing else "")
    if pragma is None:
        return [_Insertion(begin, True, order, f"{opening} "), close]
    opening = f"\n#line {_presumed_line(source, begin)}\n{opening}\n#line {_presumed_line(source, pragma.start)}\n"
    return [_Insertion(pragma.start, True, order, opening), close, *_renumber(source, begin)]


def _renumber(source: Source, offset: int) -> Iterator[_Insertion]:
    """A #line after each directive of an #if around this offset: inserted lines count in branches that are skipped,
    too, and the #line in them does not."""
    depth = len(source.tokens.branch(offset))
    for directive in source.tokens.directives:
        found = _CONDITION.match(directive.text) if directive.start > offset and depth else None
        if found is None or not found[1]:
            continue
        depth += found[1].startswith("if") - (found[1] == "endif")
        if not found[1].startswith("if"):
            yield _Insertion(directive.end, False, _INNERMOST, f"\n#line {_presumed_line(source, directive.end) + 1}")


def _pragma(source: Source, first: Statement) -> Token | None:
    """The directive before which to insert a mark so that a #pragma keeps its statement, the first one."""
    code = source.tokens.code
    after = code[first.first - 1].end if first.first else 0
    gap = [one for one in source.tokens.directives if after <= one.start < code[first.first].start]
    for at in range(len(gap)):
        depth, matches = 0, [_CONDITION.match(one.text) for one in gap[at:]]
        for name in (found[1] or "" for found in matches if found is not None):
            depth += name.startswith("if") - (name == "endif")
            if depth < 0 or (depth == 0 and name.startswith("el")):
                break
        else:
            if depth == 0 and any(found is not None and found[2] for found in matches):
                return gap[at]
    return None


def _around_jump(source: Source, jump: Statement, exits: str) -> list[_Insertion]:
    """The exits of the regions that a jump leaves; the value of a return is computed inside them."""
    code = source.tokens.code
    begin, end = code[jump.keyword].start, code[jump.last].end
    if jump.kind == "return" and jump.last > jump.keyword + 1:
        exits = (
            f"struct kscope_leaving_ {{ __device__ __forceinline__ ~kscope_leaving_() {{ {exits} }} }} kscope_left_;"
        )
    return [_Insertion(begin, True, _INNERMOST, f"{{ {exits} "), _Insertion(end, False, -_INNERMOST, " }")]


def _apply(text: str, insertions: Sequence[_Insertion]) -> str:
    out, at = [], 0
    for one in sorted(dict.fromkeys(insertions), key=lambda one: (one.offset, one.opens, one.order)):
        out += [text[at : one.offset], one.text]
        at = one.offset
    return "".join([*out, text[at:]])


def _presumed_line(source: Source, offset: int) -> int:
    """The line of an offset, as set by the source's #line directives."""
    line = source.tokens.line(offset)
    for directive in reversed(source.tokens.directives):
        found, first = _LINE.fullmatch(directive.text.strip()), source.tokens.line(directive.end) + 1
        if found is not None and first <= line:
            return int(found[1]) + line - first
    return line
