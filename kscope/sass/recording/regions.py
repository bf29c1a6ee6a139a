"""The records of marks: one for each region, instant and counter, and which of them are open at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...capture import layout
from ...errors import UnsupportedError
from ...marks.grammar import Mark
from ...marks.operations import PIPELINE
from ...marks.wide_values import is_wide
from ..placing.basic_blocks import Text
from ..placing.labels import Labeled

Key = tuple[str, str]
"""Name, and "instant" or "counter"; empty for a region."""


@dataclass(frozen=True)
class Record:
    """A record that marks write.

    Attributes:
        key: of the region, instant or counter.
        id: its id word.
        valued: it has a value.
        conditional: one of its marks has a predicate.
        full: it has no free word: it is a row with three clocks.
    """

    key: Key
    id: int
    valued: bool
    conditional: bool
    full: bool = False


def records(labels: Labeled) -> tuple[Record, ...]:
    """The record of each mark, in the order of the marks."""
    by_key = dict[Key, list[tuple[int, Mark]]]()
    for statement in labels.recording:
        mark = labels.mark(statement)
        by_key.setdefault(_key(mark), []).append((statement, mark))
    made = {key: _record(labels, key, some) for key, some in by_key.items()}
    return tuple(made[_key(mark)] for mark in labels.marks)


def _key(mark: Mark) -> Key:
    return mark.name, "" if mark.act in ("enter", "exit") else mark.act


def _record(labels: Labeled, key: Key, marks: Sequence[tuple[int, Mark]]) -> Record:
    valued = any(mark.type is not None for _, mark in marks)
    kinds = {
        "": layout.Kind.SPAN_VALUE if valued else layout.Kind.SPAN,
        "instant": layout.Kind.INSTANT_VALUE if valued else layout.Kind.INSTANT,
        "counter": layout.Kind.COUNTER,
    }
    conditional = any(
        mark.when is not None and mark.how != PIPELINE and labels.constants(statement)[1] is None
        for statement, mark in marks
    )
    return Record(key, layout.record_id(key[0], kinds[key[1]]), valued or key[1] == "counter", conditional)


def check(labels: Labeled, spec: str) -> None:
    """Refuse marks of several strategies, and pins.

    Args:
        labels: the kernel's.
        spec: the kernel's strategy.
    """
    for mark in labels.marks:
        if mark.how == PIPELINE:
            continue
        if mark.strategy not in (None, spec):
            raise UnsupportedError(
                f"{mark.noun} {mark.display_name} has another strategy than the kernel: {mark.strategy}"
            )
        if is_wide(mark.type):
            raise UnsupportedError(f"the value of {mark.noun} {mark.display_name} has 64 bits")
    for one in labels.kernel.statements:
        if one.mark is not None and one.mark.act == "pin":
            raise UnsupportedError("pins are not supported, because nothing is moved away from them there")


def overlapping_records(text: Text) -> frozenset[frozenset[Key]]:
    """Pairs of records that are needed at the same time.

    Raises:
        UnsupportedError: regions do not pair on every path of the text, or a region is inside itself.
    """
    opened: dict[int, tuple[str, ...]] = {0: ()}
    work, found = [0], set[frozenset[Key]]()
    while work:
        block = work.pop()
        walked = list(_walked(text, block, opened[block]))
        for mark, names in walked:
            if mark is not None:
                found |= {frozenset((_key(mark), (name, ""))) for name in names}
        after = walked[-1][1]
        for to in text.flow.successors[block]:
            if to not in opened:
                opened[to] = after
                work.append(to)
            elif sorted(opened[to]) != sorted(after):
                (name, *_) = sorted({*opened[to]} ^ {*after})
                raise UnsupportedError(f"region {name!r} is open on one path only")
    return frozenset(pair for pair in found if len(pair) == 2)


def open_regions(text: Text) -> dict[int, tuple[str, ...]]:
    """The regions that are open at each statement of a text, outermost first; a mark belongs to the regions around
    it.
    """
    before: dict[int, tuple[str, ...]] = {0: ()}
    work, found = [0], dict[int, tuple[str, ...]]()
    marks = frozenset(text.marks)
    while work:
        block = work.pop()
        names = before[block]
        for statement in text.within(block):
            mark = text.labels.mark(statement) if statement in marks else None
            if mark is not None and mark.act == "exit":
                names = tuple(name for name in names if name != mark.name)
            found[statement] = names
            if mark is not None and mark.act == "enter":
                names = (*names, mark.name)
        for to in text.flow.successors[block]:
            if to not in before:
                before[to] = names
                work.append(to)
    return found


def _walked(text: Text, block: int, opened: tuple[str, ...]) -> Iterator[tuple[Mark | None, tuple[str, ...]]]:
    """The marks of a block, each with the regions that are open after it; finally the regions that are open at its
    end.
    """
    marks = frozenset(text.marks)
    for statement in text.within(block):
        if statement not in marks:
            continue
        mark = text.labels.mark(statement)
        if mark.act == "enter":
            if mark.name in opened:
                raise UnsupportedError(f"region {mark.display_name} is inside of itself")
            opened = (*opened, mark.name)
        elif mark.act == "exit":
            if mark.name not in opened:
                raise UnsupportedError(f"region {mark.display_name} ends where it is not open")
            yield mark, opened
            opened = tuple(name for name in opened if name != mark.name)
            continue
        yield mark, opened
    yield None, opened


def separate_numbers(records: Sequence[Record]) -> dict[Key, int]:
    """A number for each record: all have separate registers."""
    return {record.key: number for number, record in enumerate(dict.fromkeys(records))}


def shared_numbers(records: Sequence[Record], together: frozenset[frozenset[Key]], more: int = 1) -> dict[Key, int]:
    """A number for each record: those that are not needed together share registers.

    Args:
        records: the records.
        together: pairs of them that are needed at the same time.
        more: sets of registers beyond those that are needed. With one more, a region that begins where another one
            ends need not wait for that one's store.
    """
    tries = range(1, len(records) + 2)
    many = next(many for many in tries if _colored(records, together, many) is not None)
    found = _colored(records, together, many + more)
    assert found is not None
    return found


def _colored(records: Sequence[Record], together: frozenset[frozenset[Key]], many: int) -> dict[Key, int] | None:
    """A number below `many` for each record, the least recently assigned one; None if these are too few."""
    found, last = dict[Key, int](), dict.fromkeys(range(many), -1)
    for number, record in enumerate(dict.fromkeys(records)):
        busy = {found[key] for key in found if frozenset((key, record.key)) in together}
        free = [number for number in last if number not in busy]
        if not free:
            return None
        found[record.key] = min(free, key=lambda number: last[number])
        last[found[record.key]] = number
    return found
