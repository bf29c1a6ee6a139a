"""Moves arithmetic that a mark would delay to where the compiler would have put it. docs/design/performance.md has the
effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from ..ptx import cfg
from . import loop_registers

_PURE = re.compile(
    r"(?:add|sub|mul|mad|mov|cvt|shl|shr|shf|and|or|xor|not|neg|min|max|abs|selp|setp|lop3|bfe|bfi|prmt)(?=\.)"
    r"(?![\w.]*(?:f16|f32|f64|\.cc\b))"
)
_INTO = re.compile(r"[\w.:]+\s+(\{[^}]*\}|[^,]+),")
_COPY = re.compile(r"cp\.async\.(?:c[ag]\b|bulk\.(?!wait|commit))")
_ASYNCHRONOUS = re.compile(r"(?:@!?\s*[%\w$]+\s+)?(?:wgmma\.mma_async|tcgen05\.)")
_GROUP = re.compile(r"\{[^}]*\}")
_WORD = re.compile(r"(?<![\w.])[%$A-Za-z_][\w$.]*")
_REGISTER = re.compile(r"%(?!clock64|pm\d)[a-z]+\d+")
_WRITTEN = re.compile(r"(?:@!?\s*[%\w$]+\s+)?[\w.:]+\s+(\{[^}]*\}|[^,\[]+),")

COUNTING = 8
"""The most statements that count a loop's iterations, stages and addresses: those that do not fit into a region make it
seem longer.
"""


@dataclass(frozen=True)
class _Step:
    """A statement and the registers that it names. into: those it writes, if it is pure integer arithmetic in
    registers.
    """

    statement: cfg.Statement
    text: str
    named: frozenset[str]
    into: frozenset[str] | None = None


def moves(
    function: cfg.Function, graph: Sequence[cfg.Block], loops: Sequence[loop_registers.Loop]
) -> Iterator[tuple[int, int, str]]:
    """Edits (start, end, new text) that move arithmetic above the waits and the ends of regions that it follows.


    In a loop: the statements between the end of a region that ends in arithmetic and the jump, if they are a few
    statements of arithmetic, the block waits for nothing, and none of them depends on what the loop loads or computes
    otherwise; for one of `loops` with a short region, they move above its begin. Above waits: operands of asynchronous
    copies of the same basic block, from between a wait and the first memory access after it (mostly a barrier), if a
    mark is there and nothing but marks and such arithmetic. No moved statement reads a register that the wait is for,
    and no other statement can notice the move.
    """
    text = function.text
    in_flight = frozenset(
        register
        for s in function.statements
        if _ASYNCHRONOUS.match(text, s.start, s.end)
        for group in _GROUP.findall(text, s.start, s.end)  # fragments; descriptors are read at the issue
        for register in _REGISTER.findall(group)
    )
    short = {loop.leave: loop for loop in loops if not loop.long}
    counters = [found for block in graph if (found := _counter(block, function, short)) is not None]
    awaited = _awaited(function, graph) if counters else frozenset[str]()
    for mark, steps in counters:
        if not any(step.named & awaited for step in steps):
            yield from _above(mark, steps)
    for block in graph:
        inside = function.statements[block.first : block.last]
        for n, wait in enumerate(inside):
            if wait.sort != "wait" or wait.scope:
                continue
            behind = [_step(s, text) for s in takewhile(lambda s: s.sort != "wait", inside[n + 1 :])]
            moved = _moved(behind, in_flight)
            if moved:
                yield from _above(wait, moved)


def _above(place: cfg.Statement, steps: Sequence[_Step]) -> Iterator[tuple[int, int, str]]:
    yield place.start, place.start, "".join(f"{step.text}\n\t" for step in steps)
    yield from ((step.statement.start, step.statement.end, "") for step in steps)


def _counter(
    block: cfg.Block, function: cfg.Function, short: Mapping[int, loop_registers.Loop]
) -> tuple[cfg.Statement, list[_Step]] | None:
    """The arithmetic from the last mark to a loop's jump, and the mark to move it above.

    That is the first mark that ends a region after arithmetic, or the begin of a region that is too short to hide
    anything.
    """
    inside = function.statements[block.first : block.last]
    if not block.looped or any(s.sort == "wait" for s in inside) or not inside or inside[-1].sort != "jump":
        return None
    tail = list(takewhile(lambda s: s.sort == "other", reversed(inside[:-1])))[::-1]
    marks = list(takewhile(lambda s: s.mark is not None and s.mark.act == "exit", reversed(inside[: -1 - len(tail)])))
    before = len(inside) - 1 - len(tail) - len(marks)
    if not (0 < len(tail) <= COUNTING and marks and before > 0):
        return None
    steps = [_step(s, function.text) for s in tail]
    if any(step.into is None for step in steps):
        return None
    loop = short.get(block.first + before)
    if loop is None:
        behind = inside[before - 1].sort == "other" and not marks[-1].scope
        return (marks[-1], steps) if behind else None
    region = function.statements[loop.enter : loop.leave]  # its begin reads the count before the move
    named = frozenset().union(*(_step(s, function.text).named for s in region))
    return None if any(named & step.named for step in steps) else (region[0], steps)


def _awaited(function: cfg.Function, graph: Sequence[cfg.Block]) -> frozenset[str]:
    """Registers that loops write by other means than integer arithmetic in registers, and those computed from them.
    Above the end of a region, a statement that reads one would make the region wait for it.
    """
    looped = (s for block in graph if block.looped for s in function.statements[block.first : block.last])
    steps = [_step(s, function.text) for s in looped if s.sort != "mark"]
    into = (_WRITTEN.match(step.text) for step in steps if step.into is None)
    found = {word for written in into if written for word in _WORD.findall(written[1])}
    pure = [(step.named, step.into) for step in steps if step.into is not None]
    while more := [into for named, into in pure if named & found and not into <= found]:
        found.update(*more)
    return frozenset(found)


def _step(statement: cfg.Statement, text: str) -> _Step:
    body = text[statement.start : statement.end]
    words = frozenset(_WORD.findall(body.partition(" ")[2] if statement.sort == "mark" else body))
    into = _INTO.match(body)
    if statement.sort != "other" or statement.scope or statement.predicate or into is None or not _PURE.match(body):
        return _Step(statement, body, words)
    named = frozenset(_WORD.findall(body[into.start(1) :]))
    if not all(map(_REGISTER.fullmatch, named)):  # a special register or a symbol is not moved
        return _Step(statement, body, words)
    return _Step(statement, body, named, frozenset(_WORD.findall(into[1])))


def _moved(steps: Sequence[_Step], in_flight: frozenset[str]) -> list[_Step]:
    """The arithmetic before the first access that copies need, as far as its inputs are available before the wait."""
    first = list(takewhile(lambda step: step.statement.sort != "access", steps))
    marked = any(step.statement.sort == "mark" for step in first)
    if not marked or any(step.into is None and step.statement.sort != "mark" for step in first):
        return []
    needed: frozenset[str] = frozenset()
    needed_steps: set[int] = set()
    for n in range(len(steps) - 1, -1, -1):
        step = steps[n]
        if _COPY.match(step.text):
            needed |= step.named
        elif step.into is not None and step.into & needed:
            needed_steps.add(n)
            needed = (needed - step.into) | step.named
    out: list[_Step] = []
    touched = set(in_flight)  # the registers of the wait and of statements that stay
    for n, step in enumerate(first):
        if n in needed_steps and not step.named & touched:
            out.append(step)
        else:
            touched |= step.named
    return out
