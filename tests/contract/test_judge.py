"""The judge finds every way in which a recording can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from contract import frontend_sim
from contract.judge import depths, judge
from contract.programs import BY_NAME
from contract.reader import Lane, Record, read

from kscope.capture.layout import Kind

NESTED = BY_NAME["nested"]


@pytest.fixture(scope="module")
def lanes() -> list[Lane]:
    return read(frontend_sim.run(NESTED))


def change(index: int, **fields: object) -> Callable[[Lane], Lane]:
    """A lane in which one record is another."""

    def changed(lane: Lane) -> Lane:
        records = list(lane.records)
        records[index] = replace(records[index], **fields)  # type: ignore[arg-type]  # fields of Record
        return replace(lane, records=tuple(records))

    return changed


def reorder(*order: int) -> Callable[[Lane], Lane]:
    return lambda lane: replace(lane, records=tuple(lane.records[i] for i in order))


DAMAGE: dict[str, Callable[[Lane], Lane]] = {
    "a record is missing": lambda lane: replace(lane, records=lane.records[:-1]),
    "a record too many": lambda lane: replace(lane, records=(*lane.records, lane.records[-1])),
    "two records are swapped": reorder(1, 0, 2, 3),
    "another name": change(0, region="outer"),
    "another kind": change(0, kind=Kind.INSTANT),
    "a value that should not be": change(0, value=1),
    "another count": lambda lane: replace(lane, count=lane.count + 1),
    "another block": lambda lane: replace(lane, block=(9, 0, 0)),
    "another warp": lambda lane: replace(lane, warp=7),
    "another lane": lambda lane: replace(lane, lane=5),
    "another grid": lambda lane: replace(lane, grid=(4, 1, 1)),
    "another block size": lambda lane: replace(lane, threads=(64, 1, 1)),
    "another kernel": lambda lane: replace(lane, kernel="other"),
    "another launch": lambda lane: replace(lane, launch=lane.launch + 1),
    "another clock": lambda lane: replace(lane, clock="globaltimer"),
    "another fill": lambda lane: replace(lane, fill="stop"),
    "another cluster": lambda lane: replace(lane, cluster=1),
    "a slab for every lane": lambda lane: replace(lane, every=True),
    "lanes in turn": lambda lane: replace(lane, turn=True),
    "a smaller slab": lambda lane: replace(lane, capacity=8),
    "never finished": lambda lane: replace(lane, life=None),
    "ends before its start": change(0, start=10**9),
    "ends after the kernel": change(3, end=10**9),
    "ends out of order": change(0, end=10**6),
    "starts outside of its parent": change(0, start=0),
}


def test_the_judge_accepts_an_identical_recording(lanes: list[Lane]) -> None:
    assert judge(lanes, lanes) == []


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_judge_detects_damage(damage: str, lanes: list[Lane]) -> None:
    assert judge(lanes, [DAMAGE[damage](lanes[0]), *lanes[1:]]) != []


def test_missing_lanes_are_detected(lanes: list[Lane]) -> None:
    assert judge(lanes, lanes[1:]) != []
    assert judge(lanes[1:], lanes) != []


def test_the_judge_accepts_other_times(lanes: list[Lane]) -> None:
    def later(record: Record) -> Record:
        return replace(record, start=2 * record.start, end=2 * record.end)

    slower = [replace(a, records=tuple(map(later, a.records)), life=2 * (a.life or 0)) for a in lanes]
    assert judge(lanes, slower) == []


def test_spans_that_cross_are_found(lanes: list[Lane]) -> None:
    crossing = (
        Record("a", Kind.SPAN, None, 0, 10),
        Record("b", Kind.SPAN, None, 5, 20),
    )
    one = replace(lanes[0], records=crossing, count=2, life=100)
    assert any("begins inside" in text for text in judge([one], [one]))


def test_a_region_that_shares_its_clocks_with_the_one_around_it_is_inside_of_it() -> None:
    def span(name: str, start: int, end: int) -> Record:
        return Record(name, Kind.SPAN, None, start, end)

    assert depths((span("item", 0, 5), span("caller", 0, 5), span("item", 5, 9))) == [1, 0, 0]
