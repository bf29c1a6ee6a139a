"""PTX text as statements and basic blocks: as much structure as placing marks needs. All offsets are in bare(text),
where comments and strings are blank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from ..marks.grammar import PREFIX, Mark, parse

Sort = Literal["mark", "label", "jump", "leave", "call", "wait", "access", "other"]

_HIDDEN = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"\n]*"', re.S)
_TOKEN = re.compile(
    rf"\s*(?:(?P<mark>{PREFIX}[^\n]*)"
    r"|(?P<open>\{)|(?P<close>\})"
    r"|(?P<line>\.(?:loc|file|section)\b[^\n]*)"
    r"|(?P<label>[A-Za-z_$%][\w$]*\s*:(?!:))"
    r"|(?P<statement>[^;]+;))",
    re.S,
)
_STATEMENT = re.compile(r"\s*(?:@(?P<not>!?)\s*(?P<predicate>[%\w$]+)\s+)?(?P<op>[\w.:$]+)\s*(?P<rest>.*);", re.S)
_FUNCTION = re.compile(r"\.(entry|func)\b")
_NEVER_RETURNS = re.compile(r"\.func\s+(?:\([^)]*\)\s*)?([\w$]+)\s*\([^)]*\)\s*\.noreturn\b")
_CALLED = re.compile(r"call(?:\.uni)?\s+(?:\([^)]*\)\s*,\s*)?([\w$]+)")
_NAME = re.compile(r"(?:\([^)]*\)\s*)?([\w$.%]+)")
_WORD = re.compile(r"[\w$%]+")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)")

_WAIT = re.compile(r"wgmma\.wait_group|cp\.async\.(?:bulk\.)?wait|tcgen05\.wait")
_ACCESSES = {
    "ld",
    "ldu",
    "st",
    "cp",
    "atom",
    "red",
    "tex",
    "tld4",
    "suld",
    "sust",
    "prefetch",
    "mbarrier",
    "bar",
    "barrier",
}
_CONSTANTS = ("ld.param", "ld.const")
_LEAVES = {"ret", "exit"}
_JUMPS = {"bra", "brx"}


@dataclass(frozen=True)
class Statement:
    """One piece of a function's body, at text[start:end].

    Attributes:
        sort: the kind of statement.
        start, end: its place in the text.
        scope: offsets of the braces around it, outermost first.
        name: of a label; the target of a jump; or "exit".
        predicate, negated: its guard, such as @!%p1.
        mark: the mark, for sort "mark".
        source: (file number, line) of the last .loc.
    """

    sort: Sort
    start: int
    end: int
    scope: tuple[int, ...]
    name: str = ""
    predicate: str = ""
    negated: bool = False
    mark: Mark | None = None
    source: tuple[int, int] = (0, 0)

    @property
    def flushes(self) -> bool:
        """True if finished records must be stored before it, because control may enter or leave here."""
        return self.sort in ("label", "jump", "leave", "call")


_FLAT = re.compile(r"\.reqntid\s+\d+\s*(?:,\s*1\s*){0,2}(?![\s,\d])")


@dataclass(frozen=True)
class Function:
    """A function definition: its body is text[open:close] without the braces; `text` is the whole module's bare()."""

    kind: Literal["entry", "func"]
    name: str
    open: int
    close: int
    statements: tuple[Statement, ...]
    text: str = field(repr=False)

    @property
    def marks(self) -> Iterator[Mark]:
        return (s.mark for s in self.statements if s.mark is not None)

    @property
    def has_flat_blocks(self) -> bool:
        """True if its directives require blocks of one dimension."""
        directives = self.text[self.text.rfind(")", 0, self.open) : self.open]
        return _FLAT.search(directives) is not None


@dataclass
class Block:
    """A basic block: statements[first:last] of its function, and its successors. looped: it is in a cycle."""

    first: int
    last: int
    successors: list[int] = field(default_factory=list)
    looped: bool = False


@lru_cache(2)
def bare(text: str) -> str:
    """The text with blanks for comments (except marks) and strings; offsets stay."""
    return _HIDDEN.sub(_blank, text)


def _blank(found: re.Match[str]) -> str:
    hidden = found[0]
    if hidden.startswith(PREFIX):
        return hidden
    return " " * len(hidden) if "\n" not in hidden else re.sub(".", " ", hidden)


@lru_cache(2)
def functions(text: str) -> tuple[Function, ...]:
    """Every function with a body, in order. A call of a function that never returns (`__assertfail`) counts as a jump
    to nowhere, like `trap`.
    """
    text = bare(text)
    final = frozenset(_NEVER_RETURNS.findall(text))
    found, at = [], 0
    while (head := _FUNCTION.search(text, at)) is not None:
        opened, declared = text.find("{", head.end()), text.find(";", head.end())
        if opened < 0 or 0 <= declared < opened:
            at = declared + 1 if declared >= 0 else len(text)
            continue
        name = _NAME.match(text[head.end() : opened].strip())
        statements, close = _scan(text, opened + 1)
        statements = [_ended(s, final, text) if s.sort == "call" else s for s in statements] if final else statements
        statements = _without_idle_labels(statements, text)
        last = statements[-1] if statements else None
        if last is None or last.sort not in ("jump", "leave") or last.predicate:
            # control may run into the closing brace, which returns as `ret` does
            statements.append(Statement("leave", close, close, ()))
        kind: Literal["entry", "func"] = "entry" if head[1] == "entry" else "func"
        found.append(Function(kind, name[1] if name else "?", opened + 1, close, tuple(statements), text))
        at = close + 1
    return tuple(found)


def _scan(text: str, at: int) -> tuple[list[Statement], int]:
    """The statements from `at` to the closing brace of the body, and that brace's offset."""
    out: list[Statement] = []
    scope: tuple[int, ...] = ()
    source = (0, 0)
    while (token := _TOKEN.match(text, at)) is not None:
        kind, at = token.lastgroup or "", token.end()
        start, word = token.start(kind), token[kind]
        if kind == "open":
            scope = (*scope, start)
        elif kind == "close":
            if not scope:
                return out, start
            scope = scope[:-1]
        elif kind == "line":
            loc = _LOC.match(word)
            source = (int(loc[1]), int(loc[2])) if loc else source
        elif kind == "mark":
            out.append(Statement("mark", start, at, scope, mark=parse(word), source=source))
        elif kind == "label":
            out.append(Statement("label", start, at, scope, word[:-1].strip(), source=source))
        else:
            out.append(_statement(word, start, at, scope, source))
    return out, at


def _ended(call: Statement, final: frozenset[str], text: str) -> Statement:
    """The call, as a jump to nowhere if its function is in `final`."""
    called = _CALLED.search(text, call.start, call.end)
    return replace(call, sort="jump") if called and called[1] in final else call


def _without_idle_labels(statements: list[Statement], text: str) -> list[Statement]:
    """The statements without labels that no statement names, such as debug labels, where control cannot arrive."""
    others = [s for s in statements if s.sort not in ("label", "mark")]
    named = {word for s in others for word in _WORD.findall(text, s.start, s.end)}
    return [s for s in statements if s.sort != "label" or s.name in named]


def _statement(text: str, start: int, end: int, scope: tuple[int, ...], source: tuple[int, int]) -> Statement:
    found = _STATEMENT.fullmatch(text)
    if found is None:  # unknown text: records are stored before it
        return Statement("call", start, end, scope, source=source)
    op, predicate, negated = found["op"].split(".")[0] or found["op"], found["predicate"] or "", found["not"] == "!"
    sort: Sort = "other"
    name = ""
    if op in _JUMPS:
        sort, name = "jump", found["rest"].split(",")[-1].strip()
    elif op in _LEAVES:
        sort, name = "leave", op if op == "exit" else ""
    elif op in ("trap", "brkpt"):
        sort, name = ("jump" if op == "trap" else "call"), ""
    elif op == "call" or (not op.islower() and not found["op"].startswith(".")):
        sort = "call"
    elif _WAIT.match(found["op"]):
        sort = "wait"
    elif op in _ACCESSES and not found["op"].startswith(_CONSTANTS):
        sort = "access"
    return Statement(sort, start, end, scope, name, predicate, negated, source=source)


def blocks(function: Function) -> list[Block]:
    """The control-flow graph; block 0 is the entry. A jump to an unknown label, or through a table that cannot be read,
    may go to any block, so that checks stay conservative.
    """
    statements = function.statements
    starts = {0}
    for i, statement in enumerate(statements):
        if statement.sort == "label":
            starts.add(i)
        elif statement.sort in ("jump", "leave"):
            starts.add(i + 1)
    firsts = sorted(s for s in starts if s < len(statements)) or [0]
    graph = [Block(first, last) for first, last in zip(firsts, [*firsts[1:], len(statements)], strict=True)]
    at = {block.first: n for n, block in enumerate(graph)}
    labels = {(s.name, s.scope): at[i] for i, s in enumerate(statements) if s.sort == "label"}
    for n, block in enumerate(graph):
        last = statements[block.last - 1] if block.last > block.first else None
        falls = n + 1 < len(graph)
        if last is not None and last.sort in ("jump", "leave"):
            falls = falls and bool(last.predicate)
            if last.sort == "jump" and last.name:
                block.successors += _targets(last, labels, function, len(graph))
        if falls:
            block.successors.append(n + 1)
    for cycle in cycles(graph, set(range(len(graph)))):
        for member in cycle:
            graph[member].looped = True
    return graph


def _targets(
    jump: Statement, labels: Mapping[tuple[str, tuple[int, ...]], int], function: Function, count: int
) -> list[int]:
    def resolve(name: str) -> int | None:
        inner_first = (labels.get((name, jump.scope[:depth])) for depth in range(len(jump.scope), -1, -1))
        return next((n for n in inner_first if n is not None), None)

    if "brx" in function.text[jump.start : jump.end].split("idx")[0]:
        table = re.compile(rf"(?<![\w$]){re.escape(jump.name)}\s*:\s*\.branchtargets\s+([^;]+);").search(
            function.text, function.open, function.close
        )
        names = [name.strip() for name in table[1].split(",")] if table else []
    else:
        names = [jump.name]
    found = [resolve(name) for name in names]
    known = [n for n in found if n is not None]
    return known if known and len(known) == len(found) else list(range(count))


def cycles(graph: Sequence[Block], within: Set[int]) -> list[list[int]]:
    """The blocks of each cycle among some blocks: Tarjan's strongly connected components, iteratively."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in sorted(within):
        work = [(root, 0)] if root not in index else []
        while work:
            node, child = work.pop()
            if child == 0:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            for i in range(child, len(graph[node].successors)):
                nearby = graph[node].successors[i]
                if nearby not in within:
                    continue
                if nearby not in index:
                    work += [(node, i + 1), (nearby, 0)]
                    break
                if nearby in on_stack:
                    low[node] = min(low[node], index[nearby])
            else:
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    if len(component) > 1 or node in graph[node].successors:
                        found.append(component)
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
    return found
