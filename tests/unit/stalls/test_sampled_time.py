"""Clocks as samples see them: a sampler takes one live warp of an SM's partition each period."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import traces

from kscope.analysis.samples.sampled_time import own_times
from kscope.trace import Trace
from kscope.tracedata.clock_curves import Curves


def shares(trace: Trace) -> dict[str, float]:
    spans = np.flatnonzero(trace.is_span)
    own = own_times(trace, spans)
    names = trace.region_names()[trace.region[spans]]
    return {str(name): float(own[names == name].sum() / own.sum()) for name in np.unique(names)}


def two(other: int = 4, **more: object) -> Trace:
    """Both warps load for 1,000 ns; then warp 0 ends, and the other one waits for 1,000 ns."""
    short = traces.Lane(warp=0, end=2000, spans=[("load", 1000, 2000)])
    long = traces.Lane(warp=other, end=3000, spans=[("load", 1000, 2000), ("wait", 2000, 3000)])
    return traces.trace([short, long], **more)  # type: ignore[arg-type]  # passed on


def test_the_time_of_a_warp_that_is_alone_counts_twice_that_of_two() -> None:
    found = shares(two())
    assert found == {"load": pytest.approx(0.5, abs=1e-3), "wait": pytest.approx(0.5, abs=1e-3)}


def test_a_warp_of_another_partition_takes_no_samples() -> None:
    """It has its own scheduler, and its own sampler: both are taken at each instant."""
    assert shares(two(1)) == {"load": pytest.approx(2 / 3, abs=1e-3), "wait": pytest.approx(1 / 3, abs=1e-3)}


def test_where_a_block_s_warps_are_no_multiple_of_four_partitions_are_unknown() -> None:
    trace = two(1)
    odd = replace(trace, warps=replace(trace.warps, threads=np.array([[96, 1, 1]] * 2)))
    assert shares(odd) == {"load": pytest.approx(0.5, abs=1e-3), "wait": pytest.approx(0.5, abs=1e-3)}


def test_time_counts_in_cycles_where_the_sm_has_changed_its_clock() -> None:
    """Samplers count cycles: a region at half the clock takes twice the time, and no more samples."""
    trace = two()
    first, middle, last = (int(tick) for tick in np.unique([*trace.start_ticks, trace.warps.last_tick.max()]))
    slower = Curves(np.array([0, 3]), np.array([first, middle, last]), np.array([0.0, 1000.0, 3000.0]))
    bent = replace(
        trace, curves=slower, warps=replace(trace.warps, curve=np.zeros(len(trace.warps), np.int32))
    )  # fmt: skip
    waits = bent.region_names()[bent.region] == "wait"
    assert bent.dur_ns[waits][0] > 1.3 * bent.dur_ns[~waits].max()
    assert shares(bent) == shares(trace)


def test_where_some_warps_did_not_record_time_counts_as_it_is() -> None:
    trace = two()
    for some in (
        replace(trace, recorded=replace(trace.recorded, options={"block": [0]})),
        replace(trace, recorded=replace(trace.recorded, strategies=("warps:0",))),
        replace(trace, recorded=replace(trace.recorded, clock="simulated")),
    ):
        assert shares(some)["wait"] == pytest.approx(1 / 3, abs=1e-3)


def test_nested_regions_are_left_out_of_those_around_them() -> None:
    lane = traces.Lane(end=2000, spans=[("dot", 1200, 1700), ("tile", 1000, 2000)])
    assert shares(traces.trace([lane])) == {"dot": pytest.approx(0.5), "tile": pytest.approx(0.5)}


def test_random_warps_count_as_a_sampler_takes_them() -> None:
    """Each ns a warp of those that are alive on the SM, by itself."""
    rng = np.random.default_rng(3)
    lanes = []
    for block in range(6):
        begin = 1000 + int(rng.integers(0, 400))
        middle, end = (begin + np.cumsum(rng.integers(50, 600, 2))).tolist()
        lanes.append(
            traces.Lane(block=block, sm=block % 2, start=begin, end=end,
                        spans=[("load", begin, middle), ("dot", middle, end)])
        )  # fmt: skip
    trace = traces.trace(lanes)
    seen = dict.fromkeys(("load", "dot"), 0.0)
    names, begin_ns = trace.region_names(), trace.start_ns
    end_ns = begin_ns + trace.dur_ns
    warps = trace.warps
    for sm in (0, 1):
        for now in np.arange(-2000, 4000) + 0.5:
            alive = (warps.sm == sm) & (warps.start_ns <= now) & (now < warps.end_ns)
            inside = (trace.sm == sm) & (begin_ns <= now) & (now < end_ns)
            for at in np.flatnonzero(inside):
                seen[str(names[trace.region[at]])] += 1 / alive.sum()
    expected = {name: count / sum(seen.values()) for name, count in seen.items()}
    assert shares(trace) == {name: pytest.approx(part, abs=0.01) for name, part in expected.items()}
