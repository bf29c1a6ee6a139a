"""Elected(any_lane=True) from the simulator to the trace: lanes of a warp that record in turn are one row."""

from __future__ import annotations

import numpy as np
import pytest

import kscope
import kscope_sim
from kscope.capture import layout
from kscope.capture.model import Problem
from kscope.errors import UsageError
from kscope.marks.strategies import parse_strategy
from kscope.trace import Trace

ANY = kscope.Elected(any_lane=True)


def divergent(warp, lanes) -> None:
    with kscope.region("all"):
        for turn in range(4):
            with warp.where([lanes[turn % len(lanes)]]), kscope.region("some", value=turn):
                warp.work(100)
        with warp.where(lanes), kscope.region("together"):
            warp.work(10)


def traced(kernel=divergent, lanes=(5, 6, 9), strategy=ANY, replays=1, **options) -> Trace:
    with kscope.profile(strategy=strategy, **options) as prof:
        kscope_sim.launch(kernel, grid=2, block=64, args=(lanes,), replays=replays)
    return prof.trace


def reported(trace: Trace) -> list[Problem]:
    return [problem for problem in trace.problems if problem.kind not in ("rate", "clock", "absent")]


def test_each_warp_is_one_row_for_any_recording_lane() -> None:
    trace = traced()
    assert reported(trace) == []
    assert len(trace.warps) == 4
    assert trace.warps.written.tolist() == trace.warps.records.tolist() == [6] * 4
    names = trace.region_names()[trace.region].tolist()
    assert names[:6] == ["some"] * 4 + ["together", "all"]
    assert trace.value[:4].tolist() == [0, 1, 2, 3]
    assert trace.depth[:6].tolist() == [1] * 5 + [0]


def test_records_of_a_row_are_in_order_of_their_ends() -> None:
    trace = traced()
    end = trace.start_ticks + trace.dur_cycles
    same = np.diff(trace.track) == 0
    assert (np.diff(end)[same] >= 0).all()
    assert np.all(np.diff(trace.track) >= 0)


def test_replays_are_distinguished_with_data_dependent_claims() -> None:
    state = iter(range(1 << 20))

    def kernel(warp, lanes) -> None:
        with kscope.region("all"):
            if next(state) >= 4:  # not in the first replay
                with warp.where(lanes), kscope.region("some"):
                    warp.work(10)

    trace = traced(kernel, replays=3)
    assert reported(trace) == []
    assert [launch.replay for launch in trace.launches] == [0, 1, 2]
    counts = np.bincount(trace.launch, minlength=3).tolist()
    assert counts == [4, 8, 8]


def test_dropped_records_of_elected_lanes_are_counted_exactly() -> None:
    trace = traced(records=4, fill="stop", lanes=(5,))
    (problem,) = reported(trace)
    assert (problem.kind, problem.count) == ("refused", 4)  # lane 5 of four warps: five records where four fit
    assert int((trace.warps.written - trace.warps.records).sum()) == 4


def test_the_any_lane_strategy_may_apply_to_one_region() -> None:
    def kernel(warp, lanes) -> None:
        with kscope.region("all"), warp.where(lanes):
            with kscope.region("some", strategy=ANY):
                warp.work(10)
            with kscope.region("lane 0"):
                warp.work(10)

    trace = traced(kernel, strategy=kscope.Elected())
    names = trace.region_names()[trace.region].tolist()
    assert sorted(set(names)) == ["all", "some"]
    assert len(trace.warps) == 4
    assert reported(trace) == []


def test_lanes_that_all_record_keep_their_rows() -> None:
    def kernel(warp, lanes) -> None:
        with kscope.region("every", strategy=kscope.AllThreads()), warp.where(lanes), kscope.region("some"):
            warp.work(10)

    trace = traced(kernel)
    assert len(trace.warps) == 2 * 64
    names = trace.region_names()[trace.region]
    assert {*trace.lane[names == "some"].tolist()} == {5}


def test_the_any_lane_strategy_parses_from_its_spec() -> None:
    strategy = parse_strategy("elected-any")
    assert strategy == ANY != kscope.Elected()
    assert strategy.spec == "elected-any"
    assert kscope.Elected().spec == "elected"
    with pytest.raises(UsageError, match=r"Elected\(any_lane='yes'\): expected True or False"):
        kscope.Elected(any_lane="yes")  # type: ignore[arg-type]  # the point of the test


def test_slabs_of_the_any_lane_strategy_are_flagged() -> None:
    with kscope.profile(strategy=ANY) as prof:
        kscope_sim.launch(divergent, grid=1, block=32, args=((3,),))
    (device,) = prof.capture.devices
    flags = [int(line[11]) >> layout.FLAG_SHIFT & 31 for line in device.lines if int(line[0]) == layout.HEADER_WORD]
    assert flags == [layout.FLAG_ANY | layout.FLAG_ANCHORS] * 2
