"""Arithmetic that a mark would hold back, moved to where the compiler would have had it.

A loop's counter costs nothing where the assembler puts it among arithmetic that waits for its own results; behind a
clock read at the loop's end it cannot get there (9 cycles of a region behind 64 FMAs). A pipelined loop waits for its
tensor cores, meets at a barrier, and asks for the next tiles. The assembler computes their addresses above the wait, in
its shadow. A clock read behind the wait keeps it from that: the arithmetic then stands between the wait and the
barrier, on the one chain that bounds the loop (4 % of a matmul, 6 % of a persistent one: docs/performance.md). What
lives here: which statements stand above the mark or the wait instead, as edits. What does not: any mark's code
(plan.py, ptx/), and finding statements (cfg.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from . import cfg, loop_registers

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
"""Statements at most that count a loop's turns, and the stages and addresses that go with them: a region is told to be
longer by what does not hide in it."""


@dataclass(frozen=True)
class _Step:
    """A statement and the registers that it names. `into`: what it writes, where it is pure arithmetic on
    whole numbers in registers."""

    statement: cfg.Statement
    text: str
    named: frozenset[str]
    into: frozenset[str] | None = None


def moves(
    function: cfg.Function, graph: Sequence[cfg.Block], loops: Sequence[loop_registers.Loop]
) -> Iterator[tuple[int, int, str]]:
    """Edits (start, end, new text) that move arithmetic above the waits and the ends of regions it stands behind.

    In a loop: what stands between the end of a region that ends in arithmetic and the jump, where that is a few
    statements of arithmetic alone, the block waits for nothing, and none of them may have to wait for what the loop
    loads or computes otherwise; in one of the tight `loops` with a short region, above its begin. Above waits: what
    asynchronous copies of the same basic block need, from between a wait and the first access to memory (a barrier,
    mostly) behind it; where a mark stands there, and nothing but marks and such arithmetic. No statement that is moved
    reads a register that the wait is for, and none that stays can notice.
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
    """The arithmetic from the last mark to a loop's jump, and the mark to put it above: the first of those that end a
    region behind arithmetic; or its begin, where that is the region of a tight loop (by the index of its end) and too
    short to hide anything."""
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
    region = function.statements[loop.enter : loop.leave]  # the begin, whose value is as it was before the count
    named = frozenset().union(*(_step(s, function.text).named for s in region))
    return None if any(named & step.named for step in steps) else (region[0], steps)


def _awaited(function: cfg.Function, graph: Sequence[cfg.Block]) -> frozenset[str]:
    """Registers that loops write otherwise than by arithmetic on whole numbers in registers, and what that makes of
    them: above the end of a region, who reads one would have the region wait for it."""
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
    if not all(map(_REGISTER.fullmatch, named)):  # a special register, a symbol: not for us to move
        return _Step(statement, body, words)
    return _Step(statement, body, named, frozenset(_WORD.findall(into[1])))


def _moved(steps: Sequence[_Step], in_flight: frozenset[str]) -> list[_Step]:
    """The arithmetic in front of the first access that copies need, as far as all it reads is there before."""
    first = list(takewhile(lambda step: step.statement.sort != "access", steps))
    marked = any(step.statement.sort == "mark" for step in first)
    if not marked or any(step.into is None and step.statement.sort != "mark" for step in first):
        return []
    needed: frozenset[str] = frozenset()
    wanted: set[int] = set()
    for n in range(len(steps) - 1, -1, -1):
        step = steps[n]
        if _COPY.match(step.text):
            needed |= step.named
        elif step.into is not None and step.into & needed:
            wanted.add(n)
            needed = (needed - step.into) | step.named
    out: list[_Step] = []
    touched = set(in_flight)  # what the wait is for, and what statements that stay read or write
    for n, step in enumerate(first):
        if n in wanted and not step.named & touched:
            out.append(step)
        else:
            touched |= step.named
    return out
