"""One judge for all frontends: two recordings of a program are the same, but for time."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from contract.reader import Lane, Record

from kscope.capture.layout import Kind


def judge(expected: list[Lane], got: list[Lane]) -> list[str]:
    """Everything in which `got` breaks the contract that `expected` defines."""
    return [*compare(expected, got), *check_times(got)]


def compare(expected: list[Lane], got: list[Lane]) -> Iterator[str]:
    """Differences that are not of time: lanes, geometry, sequences of records with their nesting, counts."""
    want, have = _by_key(expected), _by_key(got)
    every = {key[:-1] for key, lane in want.items() if lane.every}
    turn = {key[:-1] for key, lane in want.items() if lane.turn}
    yield from (f"{_name(want[key])}: not recorded" for key in want.keys() - have.keys())
    yield from (f"{_name(have[key])}: recorded, but should not be" for key in have.keys() - want.keys())
    for key in sorted(want.keys() & have.keys()):
        one, other = want[key], have[key]
        for what, a, b in (
            ("grid", one.grid, other.grid),
            ("threads of a block", prod(one.threads), prod(other.threads)),
            ("cluster", one.cluster, other.cluster),
            ("clock", one.clock, other.clock),
            ("fill", one.fill, other.fill),
            ("places for records", one.capacity, other.capacity),
            ("records written", one.count, other.count),
            ("records kept", len(one.records), len(other.records)),
            ("warp finished", one.life is not None, other.life is not None),
        ):
            if a != b:
                yield f"{_name(one)}: {what}: expected {a}, got {b}"
        # the simulator has these only for lanes that such a mark made claim, a compiled kernel for the whole warp
        if other.every not in (one.every, key[:-1] in every):
            yield f"{_name(one)}: flag of a slab per lane: expected {one.every}, got {other.every}"
        if other.turn not in (one.turn, key[:-1] in turn):
            yield f"{_name(one)}: flag of lanes that record in turn: expected {one.turn}, got {other.turn}"
        for number, (a, b) in enumerate(zip(_compared(one), _compared(other), strict=False)):
            if a != b:
                yield f"{_name(one)}: record {number}: expected {a}, got {b}"
                break


def check_times(lanes: list[Lane]) -> Iterator[str]:
    """Check every lane's times: inside the anchors, ends in order, spans nested or disjoint."""
    for lane in lanes:
        last = 0
        for number, record in enumerate(lane.records):
            if not last <= record.end:
                yield f"{_name(lane)}: record {number} ends at {record.end}, before the one in front of it ({last})"
            if not 0 <= record.start <= record.end:
                yield f"{_name(lane)}: record {number} starts at {record.start}, after its end {record.end}"
            if lane.life is not None and record.end > lane.life:
                yield f"{_name(lane)}: record {number} ends at {record.end}, after the kernel ({lane.life})"
            last = record.end
        yield from (f"{_name(lane)}: {text}" for text in _crossings(lane.records))


def _by_key(lanes: list[Lane]) -> dict[Any, Lane]:
    """Lanes that recorded something, by key; launches are numbered among those alone."""
    kept = [lane for lane in lanes if lane.count]
    numbers = {launch: number for number, launch in enumerate(sorted({lane.launch for lane in kept}))}
    return {(numbers[lane.launch], *lane.key[1:]): lane for lane in kept}


def _compared(lane: Lane) -> list[tuple[Any, ...]]:
    """The records without their times; with their depth where the clock is fine enough to tell it."""
    reported = depths(lane.records) if lane.clock == "cycles" else [None] * len(lane.records)
    return [(r.region, r.kind.name, r.value, depth) for r, depth in zip(lane.records, reported, strict=True)]


def depths(records: tuple[Record, ...]) -> list[int]:
    """The nesting depth of each record. Records are ordered by end, so parents come later; nested regions may share a
    clock. An empty span contains nothing.
    """
    return [
        sum(1 for parent in records[i + 1 :] if parent.kind in _SPANS and _contains(parent, record))
        for i, record in enumerate(records)
    ]


def _contains(parent: Record, record: Record) -> bool:
    begins = parent.start <= record.start
    return begins and (record.start < parent.end if record.start == record.end else parent.start < parent.end)


def _crossings(records: tuple[Record, ...]) -> Iterator[str]:
    spans = [record for record in records if record.kind in _SPANS]
    for i, later in enumerate(spans):
        for earlier in spans[:i]:
            if earlier.start < later.start < earlier.end:
                yield f"{later.region!r} begins inside of {earlier.region!r} and ends after it"


_SPANS = (Kind.SPAN, Kind.SPAN_VALUE)


def _name(lane: Lane) -> str:
    return (
        f"launch {lane.launch}.{lane.replay} of {lane.kernel}, block {lane.block}, warp {lane.warp}, lane {lane.lane}"
    )
