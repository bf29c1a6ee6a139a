"""Selects the operations of a kernel to mark: each span of operations in one block becomes one region. A span begins
and ends in one block, so it is entered and left on every path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kscope.instrument.selection import auto
from kscope.instrument.selection.auto import Selection
from kscope.instrument.selection.catalog import Site
from kscope.marks.grammar import Mark

from . import operations
from .irtext import Block, Operation, Place, Places, walk

Belongs = Callable[[Places], "Place | None"]
"""Returns the one of these places that is in a region; None if none is."""


@dataclass(frozen=True)
class Span:
    """Operations first to last of a block, as one region.

    Attributes:
        mark: the region's enter.
        what: the kind of operation, or "lines".
        where: file:first-last.
        before, after: lines of the text before which the two marks are inserted.
        place: their line of source.
        loops: around it, the outermost first.
        group: of warps, if they are specialized.
        operations: their number.
    """

    mark: Mark
    what: str
    where: str
    before: int
    after: int
    place: Place | None
    loops: tuple[Place, ...]
    group: str
    operations: int

    def site(self) -> Site:
        """The span as a site of the listing."""
        loops = tuple(f"{place.file}:{place.line}" for place in self.loops)
        return Site(self.mark.name, self.what, self.where, loops, self.group, self.operations)


@dataclass(frozen=True)
class _Scope:
    """A block and its surroundings."""

    block: Block
    around: tuple[Places, ...]
    loops: tuple[Place, ...]
    loop: Operation | None = None
    group: str = ""
    places: list[Place | None] = field(default_factory=list)

    @staticmethod
    def of(
        operation: Operation, around: tuple[Places, ...] = (), loops: tuple[Place, ...] = (), group: str = ""
    ) -> Iterator[_Scope]:
        """The blocks of an operation, including nested ones, that are code of the kernel."""
        if operation.leaf:
            return
        around = (*around, operation.places)
        loop = operation if operation.name in operations.LOOPS else None
        if loop is not None and (place := operations.users_place(operation.places)) is not None:
            loops = (*loops, place)
        for block in operation.blocks:
            split = operation.name == operations.SPECIALIZE
            inner_group = block.opened.partition("(")[0].strip(" {") if split else group
            yield _Scope(block, around, loops, loop, inner_group, list(_lines(block, around)))
            for inner in block.operations:
                yield from _Scope.of(inner, around, loops, inner_group)

    def span(self, mark: Mark, what: str, places: Sequence[Place], first: int, last: int) -> Span:
        """Operations first to last of the block, counted from 0, as a span with these places."""
        inside = self.block.operations
        # Triton adds a barrier after a wait without one: a mark between them would duplicate it
        followed = last + 1 < len(inside) and inside[last + 1].name in operations.BARRIERS
        if followed and operations.waits(inside[last]):
            last += 1
        begin, end = inside[first], inside[last]
        count = sum(not operations.is_bookkeeping(one) for one in inside[first : last + 1])
        place = places[0] if places else None
        return Span(mark, what, _where(places), begin.first, end.last + 1, place, self.loops, self.group, count)


def _lines(block: Block, around: Sequence[Places]) -> Iterator[Place | None]:
    """The place of each operation; one without a place has that of the operation before it."""
    before: Place | None = None
    for operation in block.operations:
        if not operations.unplaced(operation.places, around):
            before = operations.users_place(operation.places)
        yield before


def kind_spans(function: Operation, selection: Selection) -> list[Span]:
    """A span for each operation of a selected kind. Consecutive ones of one kind and line, with only indices and
    addresses between them, are one span.
    """
    found = []
    for scope in _Scope.of(function):
        if "iteration" in selection.kinds and scope.loop is not None and scope.block.body:
            place = operations.users_place(scope.loop.places)
            mark = _named("iteration", place)
            found.append(scope.span(mark, "iteration", _some(place), 0, len(scope.block.body) - 1))
        runs: list[tuple[str | None, Mark, Place | None, int, int]] = []
        for at, operation in enumerate(scope.block.body):
            kind = selection.kind(operations.kinds(operation))
            if kind is None:
                if runs and not operations.is_bookkeeping(operation):
                    runs.append((None, runs[-1][1], None, at, at))
                continue
            place = operations.users_place(operation.places) if kind == "loop" else scope.places[at]
            mark = _named(kind, place)
            if runs and runs[-1][:2] == (kind, mark) and kind != "loop":
                runs[-1] = kind, mark, place, runs[-1][3], at
            else:
                runs.append((kind, mark, place, at, at))
        free = 0
        for kind, mark, place, first, last in runs:
            if kind is not None:
                begin = _with_operands(scope.block, free, first, last)
                found.append(scope.span(mark, kind, _some(place), begin, last))
                free = last + 1
    return found


def _with_operands(block: Block, free: int, first: int, last: int) -> int:
    """The begin of the region of operations first to last: before the operations directly before a matrix product that
    read its operands into registers. After these, all operands would be in registers at the region's begin.

    Args:
        block: the block.
        free: the first operation that is in no earlier region.
        first, last: the region's operations.
    """
    span = block.body[first : last + 1]
    if not any("dot" in operations.kinds(operation) for operation in span):
        return first
    begin, used = first, {name for operation in span for name in operation.operands}
    for at in range(first - 1, free - 1, -1):
        operation = block.body[at]
        if not (operations.is_operand(operation) or operations.is_bookkeeping(operation)):
            break
        if operation.result in used:
            used.update(operation.operands)
            begin = at if operations.is_operand(operation) else begin
    return begin


def _named(kind: str, place: Place | None) -> Mark:
    return Mark("enter", auto.name(kind, place.file, place.line) if place else kind, how="auto")


def _some(place: Place | None) -> Sequence[Place]:
    return [place] if place else []


def _where(places: Sequence[Place]) -> str:
    """file:first-last of the places in the first one's file."""
    if not places:
        return "?"
    lines = sorted(place.line for place in places if place.file == places[0].file)
    return f"{places[0].file}:{lines[0]}" + (f"-{lines[-1]}" if lines[-1] > lines[0] else "")


def line_spans(function: Operation, selection: Selection) -> list[Span]:
    """The spans of each range of lines."""
    found = []
    for lines in selection.lines:

        def belongs(places: Places, lines: auto.Lines = lines) -> Place | None:
            return next((place for place in places if lines.covers(place.file, place.line)), None)

        found += runs(function, Mark("enter", lines.name, how="lines"), "lines", belongs)
    return found


def runs(function: Operation, mark: Mark, what: str, belongs: Belongs) -> list[Span]:
    """A region's operations as spans: consecutive ones of a block. Addresses and indices neither form a span nor end
    one, unless the region has nothing else.
    """
    scopes = [(scope, list(_members(scope, belongs))) for scope in _Scope.of(function)]
    whole = {
        id(inner)
        for scope, members in scopes
        for operation, member in zip(scope.block.operations, members, strict=True)
        if member
        for inner in _blocks(operation)
    }
    scopes = [(scope, members) for scope, members in scopes if id(scope.block) not in whole]
    found: list[tuple[_Scope, list[Place], int, int, bool]] = []
    for scope, members in scopes:
        run: list[int] = []
        body = scope.block.body
        for at in range(len(body) + 1):
            if at < len(body) and members[at] is not None:
                run.append(at)
            elif run and (at == len(body) or not operations.is_bookkeeping(body[at])):
                working = [one for one in run if not operations.is_bookkeeping(scope.block.operations[one])]
                run = working or run
                places = [place for one in run for place in _inside(scope.block.operations[one], members[one], belongs)]
                found.append((scope, places, run[0], run[-1], bool(working)))
                run = []
    has_work = any(working for *_, working in found)
    return [
        scope.span(mark, what, places, first, last)
        for scope, places, first, last, working in found
        if working or not has_work
    ]


def _members(scope: _Scope, belongs: Belongs) -> Iterator[Place | None]:
    """For each operation of a block, its place in the region; None if it is outside."""
    for operation, place in zip(scope.block.operations, scope.places, strict=True):
        if operations.marks_of(operation) or not (operation.leaf or _whole(operation, belongs, scope.around)):
            yield None
        elif operations.unplaced(operation.places, scope.around):
            yield belongs((place,)) if place is not None else None
        else:
            yield belongs(operation.places)


def _whole(operation: Operation, belongs: Belongs, around: tuple[Places, ...]) -> bool:
    """True if all work inside the operation belongs to the region as well."""
    return all(
        place is None or (belongs((place,)) or belongs(inner.places)) is not None or operations.is_bookkeeping(inner)
        for scope in _Scope.of(operation, around)
        for inner, place in zip(scope.block.body, scope.places, strict=False)
        if inner.leaf
    )


def _inside(operation: Operation, place: Place | None, belongs: Belongs) -> Iterator[Place]:
    """The places of a region's operation and of the operations in it."""
    inner = (belongs(one.places) for block in operation.blocks for one in walk(block))
    yield from (one for one in (place, *(inner if not operation.leaf else ())) if one is not None)


def _blocks(operation: Operation) -> Iterator[Block]:
    for block in operation.blocks:
        yield block
        for inner in walk(block):
            yield from inner.blocks


@dataclass
class Region:
    """A region of the source in the compiler's first IR.

    Attributes:
        mark: its enter.
        closed: it ends in the block where it begins.
        places: origins of the operations in it.
        lines: lines that occur only in its operations.
    """

    mark: Mark
    closed: bool = True
    places: set[Places] = field(default_factory=set)
    lines: set[tuple[str, int]] = field(default_factory=set)

    def belongs(self, places: Places) -> Place | None:
        """The innermost of these places if operations from there were in the region, else None."""
        place = operations.users_place(places)
        inside = places in self.places or (place is not None and (place.file, place.line) in self.lines)
        return place if inside else None


def regions(functions: Iterable[Operation]) -> dict[str, Region]:
    """The regions that begin and end in one block, by name."""
    found: dict[str, Region] = {}
    seen: dict[tuple[str, int], list[set[str]]] = {}
    for function in functions:
        _collect(function, (), found, seen)
    for name, region in found.items():
        region.lines = {line for line, inside in seen.items() if all(name in names for names in inside)}
    return {name: region for name, region in found.items() if region.places and region.closed}


def _collect(
    operation: Operation,
    outside: tuple[str, ...],
    found: dict[str, Region],
    seen: dict[tuple[str, int], list[set[str]]],
) -> None:
    for block in operation.blocks:
        opened = list(outside)
        for inner in block.operations:
            marks = operations.marks_of(inner)
            for mark in marks:
                if mark.act == "enter":
                    found.setdefault(mark.name, Region(mark))
                    opened.append(mark.name)
                elif mark.act == "exit" and mark.name in opened:
                    opened.reverse()
                    opened.remove(mark.name)
                    opened.reverse()
            if not marks:
                for name in opened:
                    found[name].places.add(inner.places)
                if (place := operations.users_place(inner.places)) is not None:
                    seen.setdefault((place.file, place.line), []).append(set(opened))
                _collect(inner, tuple(opened), found, seen)
        for name in opened[len(outside) :]:
            found[name].closed = False
