"""Captures recorded on a GPU decode to what their launches did (made by tests/golden/record.py)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kscope
from kscope.export import row_notes

GOLDEN = Path(__file__).parents[1] / "golden"

# records by region: blocks x recording warps x records of a warp, as the kernels' sources have them
COUNTS = {
    "matmul": {"mainloop": 4 * 8, "load": 4 * 8 * 32, "dot": 4 * 8 * 32, "epilogue": 4 * 8},
    "stalls": {"mainloop": 4 * 8, "load": 4 * 8 * 32, "dot": 4 * 8 * 32, "epilogue": 4 * 8},
    "attention": {
        **dict.fromkeys(("load_q", "store"), 4 * 8),
        **dict.fromkeys(("load_k", "qk", "softmax", "load_v", "pv"), 4 * 8 * 32),
    },
    "warp_specialized": {
        **dict.fromkeys(("multiply", "wait_ready"), 4 * 4 * 32),
        **dict.fromkeys(("wait_empty", "ask"), 4 * 32),
        "store": 4 * 4,
    },
    "four": dict.fromkeys(("one", "two", "three", "four"), 6 * 2),
    "lanes": dict.fromkeys(("one", "two", "three", "four"), 6 * 64),
    "ring": {"loop": 4 * 4, "step": 4 * 4 * 15},
    "stop": {"step": 4 * 4 * 16},
    "globaltimer": {"loop": 4 * 4, "step": 4 * 4 * 40},
    "block": {"loop": 4, "step": 4 * 40},
    "graph": dict.fromkeys(("one", "two", "three", "four"), 6 * 4),
    "softmax_cute": dict.fromkeys(("maximum", "sum", "write"), 4 * 8),
}


def trace(name: str) -> kscope.Trace:
    return kscope.load(GOLDEN / f"{name}.kscope")


def names(got: kscope.Trace) -> list[str]:
    """Each record's region."""
    return [str(name) for name in got.region_names()[got.region]]


def test_every_golden_capture_is_tested() -> None:
    assert {path.stem for path in GOLDEN.glob("*.kscope")} == set(COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_every_expected_record_is_there(name: str) -> None:
    assert Counter(names(trace(name))) == COUNTS[name]


@pytest.mark.parametrize("name", COUNTS)
def test_a_capture_with_missing_records_reports_a_problem(name: str) -> None:
    whole = kscope.load_capture(GOLDEN / f"{name}.kscope")
    lines = whole.devices[0].lines
    damaged = lines[:0], lines[1:2], lines[:1], lines * 0, lines[::2].copy()
    for some in damaged:
        got = kscope.decode(replace(whole, devices=(replace(whole.devices[0], lines=some),)))
        assert len(got) or got.problems
    for nothing in (replace(whole, devices=()), replace(whole, epoch=whole.epoch + 1)):
        got = kscope.decode(replace(nothing, problems=()))
        assert not len(got) and got.problems


@pytest.mark.parametrize("name", COUNTS)
def test_times_are_finite_ordered_and_within_their_launch(name: str) -> None:
    got = trace(name)
    assert (got.dur_cycles >= 0).all()
    assert (got.dur_ns >= 0).all()
    assert np.isfinite(got.start_ns).all()
    assert float(np.ptp(got.start_ns)) < 1e7  # launches of microseconds, on one axis


@pytest.mark.parametrize(("name", "dropped"), [("ring", 4 * 4 * 25), ("stop", 4 * 4 * 25), ("matmul", 0)])
def test_dropped_records_of_golden_captures_are_counted(name: str, dropped: int) -> None:
    problems = [p for p in trace(name).problems if p.kind in ("overwritten", "refused")]
    assert sum(problem.count for problem in problems) == dropped


def test_rings_keep_the_newest_and_stopping_slabs_the_oldest_records() -> None:
    newest, oldest = (trace(name).filter(region="step").value for name in ("ring", "stop"))
    assert set(newest.astype(int).tolist()) == set(range(25, 40))
    assert set(oldest.astype(int).tolist()) == set(range(16))


def test_regions_nest_in_the_region_around_them() -> None:
    got = trace("matmul")
    placed = zip(names(got), got.depth.tolist(), strict=True)
    assert set(placed) == {
        ("mainloop", 0), ("load", 1), ("dot", 1), ("epilogue", 0),
    }  # fmt: skip


def test_replays_of_a_graph_are_separate_launches() -> None:
    assert len(trace("graph").launches) == 6


def test_all_lanes_of_a_warp_record_with_the_lanes_strategy() -> None:
    got = trace("lanes")
    assert sorted(set(got.lane.tolist())) == list(range(32))


def test_warps_of_a_partition_have_separate_records() -> None:
    got = trace("warp_specialized")
    fetching = set(got.filter(region="ask").warp.tolist())
    multiplying = set(got.filter(region="multiply").warp.tolist())
    assert multiplying == {0, 1, 2, 3}
    assert len(fetching) == 1 and not fetching & multiplying


def test_durations_of_globaltimer_are_whole_ticks() -> None:
    got = trace("globaltimer")
    assert (got.dur_ns % 32 == 0).all()


@pytest.mark.parametrize("name", COUNTS)
def test_prologue_and_epilogue_bounds_are_ordered(name: str) -> None:
    bounds = {argument.name: argument for argument in row_notes.arguments(trace(name))}
    for part in ("prologue", "epilogue"):
        least, most = bounds[f"{part}_least"], bounds[f"{part}_most"]
        known = least.known & most.known
        assert (least.values[known] <= most.values[known]).all()


def test_the_strategies_of_earlier_captures_have_their_texts_of_today() -> None:
    assert kscope.load_capture(GOLDEN / "lanes.kscope").options["strategy"] == "all"
    assert {module.strategy for module in kscope.load_capture(GOLDEN / "four.kscope").modules} == {"elected"}
