"""The cost of recording: compensation restores a trace with a known cost, or reports that it cannot."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st
from synth import Rec, instant

import kscope
from kscope.analysis.trust.overhead import RegionCost, compensate, overheads
from kscope.capture.layout import Kind
from kscope.errors import UsageError
from kscope.trace import Trace, decode

COST = RegionCost(30, inside=6)


def program(rng: random.Random, depth: int = 3) -> list[tuple[str, str | int]]:
    """Marks and cycles of work between them, as one warp meets them."""
    found: list[tuple[str, str | int]] = []
    for _ in range(rng.randrange(1, 4)):
        found.append(("work", rng.randrange(20)))
        if rng.random() < 0.2:
            found.append(("point", "mark"))
        elif depth:
            name = rng.choice(("load", "dot"))
            found += [("enter", name), *program(rng, depth - 1), ("exit", name)]
    return [*found, ("work", rng.randrange(5))]


def run(steps: list[tuple[str, str | int]], cost: RegionCost) -> tuple[list[Rec], int]:
    """The records of a warp with marks of that cost, and its end clock."""
    clock, stack, records = 2000.0, list[float](), list[Rec]()
    for what, value in steps:
        if what == "work":
            clock += int(value)
        elif what == "enter":
            stack.append(clock)
            clock += cost.inside
        else:
            start = clock if what == "point" else stack.pop()
            kind = Kind.INSTANT if what == "point" else Kind.SPAN
            records.append(Rec(str(value), int(start), int(clock), kind))
            clock += cost.cycles - cost.inside
    return records, int(clock)


def recorded(*warps: list[tuple[str, str | int]], cost: RegionCost) -> Trace:
    slabs = []
    for warp, steps in enumerate(warps):
        records, end = run(steps, cost)
        slabs.append(synth.slab(records, log2=8, start=1990, end=end, warp=warp))
    return decode(synth.capture(*slabs, names=("load", "dot", "mark")))


@given(st.randoms(use_true_random=False))
def test_compensation_removes_the_cost_of_marks(rng: random.Random) -> None:
    warps = [program(rng) for _ in range(2)]
    truth, got = recorded(*warps, cost=RegionCost(0)), compensate(recorded(*warps, cost=COST), COST)
    np.testing.assert_array_equal(got.start_ticks, truth.start_ticks)
    np.testing.assert_array_equal(got.dur_cycles, truth.dur_cycles)
    cycles = (got.warps.end_ns - got.warps.start_ns) / got.warps.tick_ns
    expected = [run(steps, RegionCost(0))[1] - 1990 for steps in warps]
    np.testing.assert_allclose(cycles, expected, atol=1e-3)


@given(st.randoms(use_true_random=False), st.floats(0, 200), st.floats(0, 1))
def test_compensation_preserves_nesting(rng: random.Random, cycles: float, part: float) -> None:
    trace = recorded(program(rng), cost=COST)
    got = compensate(trace, RegionCost(cycles, cycles * part))
    assert (got.dur_cycles >= 0).all()
    assert (np.diff(got.start_ticks + got.dur_cycles) >= 0).all()
    for a in range(len(trace)):
        for b in range(len(trace)):
            held = trace.start_ticks[b] <= trace.start_ticks[a] and a < b
            assert not held or got.start_ticks[b] <= got.start_ticks[a]


def test_compensation_with_zero_cost_only_adds_its_problem() -> None:
    trace = recorded([("enter", "load"), ("work", 10), ("exit", "load")], cost=COST)
    got = compensate(trace, RegionCost(0))
    np.testing.assert_array_equal(got.dur_cycles, trace.dur_cycles)
    assert "compensated" in {problem.kind for problem in got.problems}


def test_durations_that_would_be_negative_are_counted() -> None:
    trace = recorded([("enter", "load"), ("work", 3), ("exit", "load")], cost=RegionCost(0))
    [problem] = [one for one in compensate(trace, COST).problems if one.kind == "compensated"]
    assert problem.count == 1
    assert "1 duration would be below 0" in problem.text


def test_summaries_of_compensated_traces_name_the_compensation() -> None:
    trace = recorded([("enter", "load"), ("work", 90), ("exit", "load")], cost=COST)
    assert "30 cycles per region were subtracted" in str(compensate(trace, COST).summary())


def test_the_share_of_a_region_is_its_records_times_the_cost() -> None:
    steps: list[tuple[str, str | int]] = [("enter", "load"), ("work", 94), ("exit", "load")] * 5
    [row] = overheads(recorded(steps, cost=COST), COST)
    assert (row.region, row.count) == ("load", 5)
    assert row.cost_ns == pytest.approx(5 * 30 / 1.98, rel=1e-3)
    assert row.inside_part == pytest.approx(6 / 100)
    life = 10 + 5 * (94 + 30)
    assert row.share == pytest.approx(150 / life)


def test_points_have_no_row_and_a_warp_without_records_no_cost() -> None:
    only = decode(synth.capture(synth.slab([instant("load", 2000)]), synth.slab([], warp=1)))
    assert overheads(only, COST) == ()


def test_a_timer_too_coarse_for_the_cost_is_refused(root: Path) -> None:
    trace = kscope.load(root / "tests" / "golden" / "globaltimer.kscope")
    for work in (overheads, compensate):
        with pytest.raises(UsageError, match='record with clock="cycles"'):
            work(trace, COST)  # type: ignore[operator]  # both take the same


def test_a_filtered_trace_cannot_be_compensated() -> None:
    trace = recorded([("enter", "load"), ("work", 9), ("exit", "load")], cost=COST)
    with pytest.raises(UsageError, match="compensate first, then filter"):
        compensate(trace.filter(region="load"), COST)


@pytest.mark.parametrize("wrong", [(-1, 0), (5, 6), (5, -1), (float("nan"), 0), (1e9, 0)])
def test_impossible_region_costs_are_refused(wrong: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="0 <= inside <= cycles"):
        RegionCost(*wrong)
