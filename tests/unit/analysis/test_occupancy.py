"""Occupancy over time, per-SM use, waves and tails: against counting at each nanosecond, and by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest
import traces
from hypothesis import given
from hypothesis import strategies as st

from kscope.analysis.occupancy import overview, utilization, waves
from kscope.errors import UsageError


@given(st.randoms(use_true_random=False))
def test_the_overview_matches_a_count_per_nanosecond(rng: random.Random) -> None:
    made = traces.lanes(rng)
    view = overview(traces.trace(made), bins=9)
    base = traces.origin(made)
    width = view.edges_ns[1] - view.edges_ns[0]
    fine = np.arange(0, max(one.end for one in made) - base)
    for row, (_, sm) in enumerate(view.sms):
        mine = [one for one in made if one.sm == sm]
        alive = sum(((fine >= one.start - base) & (fine < one.end - base)).astype(float) for one in mine)
        busy = np.array([sum(one.innermost(int(time) + base) is not None for one in mine) for time in fine], float)
        for k in range(9):
            part = np.clip(np.minimum(fine + 1, view.edges_ns[k + 1]) - np.maximum(fine, view.edges_ns[k]), 0, None)
            assert view.alive[row, k] == pytest.approx((alive * part).sum() / width, abs=1e-6)
            lived = (alive * part).sum()
            assert view.busy[row, k] == pytest.approx((busy * part).sum() / lived if lived else 0, abs=1e-6)


@given(st.randoms(use_true_random=False))
def test_sm_utilization_adds_up(rng: random.Random) -> None:
    made = traces.lanes(rng)
    trace = traces.trace(made)
    found = utilization(trace)
    [launch] = waves(trace)
    for row in found:
        mine = [one for one in made if one.sm == row.sm]
        alive = {time for one in mine for time in range(one.start, one.end)}
        assert (row.warps, row.blocks) == (len(mine), len({one.block for one in mine}))
        assert row.alive_ns == sum(one.end - one.start for one in mine)
        assert row.used == pytest.approx(min(1.0, len(alive) / launch.time_ns))
        busy = sum(one.innermost(time) is not None for one in mine for time in range(one.start, one.end))
        assert row.busy_ns == pytest.approx(busy)


def blocks(*lives: tuple[int, int, int]) -> list[traces.Lane]:
    """A block of one warp for each (SM, start, end)."""
    return [
        traces.Lane(block=number, sm=sm, start=1000 + start, end=1000 + end, spans=[("load", 1000 + start, 1000 + end)])
        for number, (sm, start, end) in enumerate(lives)
    ]


def test_launches_at_the_same_time_share_the_time_of_their_device() -> None:
    lives = ((1, 0, 100), (2, 50, 150), (3, 300, 400))
    made = [
        traces.Lane(grid_id=launch, start=1000 + start, end=1000 + end, spans=[("load", 1000 + start, 1000 + end)])
        for launch, start, end in lives
    ]
    [found] = utilization(traces.trace(made))
    assert (found.launches, found.used) == (3, 1.0)
    assert found.mean_warps == pytest.approx(300 / 250)


def test_waves_and_the_tail_are_detected() -> None:
    made = blocks((0, 0, 100), (0, 100, 200), (0, 200, 300), (1, 10, 110), (1, 110, 210))
    [found] = waves(traces.trace(made))
    assert (found.blocks, found.sms, found.resident, found.waves) == (5, 2, 1, 3)
    assert (found.time_ns, found.ramp_ns, found.tail_ns) == (300, 10, 90)
    assert found.tail_idle == pytest.approx(90 / 600)


def test_blocks_that_share_an_sm_are_one_wave() -> None:
    [found] = waves(traces.trace(blocks((0, 0, 100), (0, 5, 90), (0, 100, 200), (0, 101, 200))))
    assert (found.resident, found.waves) == (2, 2)


def test_an_overview_window_excludes_other_times() -> None:
    trace = traces.trace(blocks((0, 0, 100), (0, 100, 200)))
    view = overview(trace, bins=2, first=150, last=250)
    assert view.alive.tolist() == [[1, 0]]
    assert view.busy.tolist() == [[1, 0]]


@pytest.mark.parametrize("wrong", [{"bins": 0}, {"first": 5, "last": 5}])
def test_a_range_without_time_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="expected"):
        overview(traces.trace(blocks((0, 0, 100))), **wrong)


def test_a_trace_without_lanes_has_no_sms() -> None:
    trace = traces.trace([])
    assert utilization(trace) == waves(trace) == ()
    assert overview(trace, 4).alive.shape == (0, 4)
