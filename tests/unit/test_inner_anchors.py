"""Anchors among the records of long warps, on simulated SMs whose clocks change and whose true time is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import capture as recorded
from unsteady import (
    LIMITS,
    Float,
    Known,
    Seen,
    Speed,
    boosts,
    brakes,
    decoded,
    falls,
    in_condition,
    jumps,
    known,
    wanders,
)

import kscope
from kscope import native
from kscope.capture import layout, wire
from kscope.capture.capture import Capture
from kscope.decoding import axis
from kscope.decoding.anchors import Rows
from kscope.decoding.slabs import find
from kscope.instrument.recording import Recording
from kscope.trace import decode
from kscope_sim import Warp

EDGE = wire.ANCHOR_STEPS << wire.STEP_SHIFT
LENGTHS = (2.5e6, 4e7, 1.98e8)


def with_two_anchors(monkeypatch: pytest.MonkeyPatch, of: Known) -> Seen:
    """The same, decoded as if the warps had only the anchors at their ends."""

    def none(inner: object, anchors: Any, slabs: object, sm: Any, *rest: object) -> Any:
        return anchors, Rows.of(sm[anchors.slab])

    with monkeypatch.context() as patch:
        patch.setattr(axis, "with_inner_anchors", none)
        patch.setattr(axis, "_curved", no_curves)
        return decoded(of)


def no_curves(anchors: object, rows: object, group: object, among: Any, inner: object) -> Any:
    return np.zeros(len(among), bool)


def on_lines(monkeypatch: pytest.MonkeyPatch, of: Known) -> Seen:
    """The same, decoded with all times of a warp on one line."""
    with monkeypatch.context() as patch:
        patch.setattr(axis, "_curved", no_curves)
        return decoded(of)


@pytest.mark.parametrize("warps", [1, 16])
@pytest.mark.parametrize("speed", [falls, jumps, brakes, boosts, wanders])
@pytest.mark.parametrize("length", LENGTHS)
def test_no_time_is_beyond_its_bound_and_most_are_much_nearer_than_on_one_line(
    speed: Speed, length: float, warps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = known(speed, length, 250 if warps == 1 else 60, warps)
    seen, before = decoded(of), with_two_anchors(monkeypatch, of)
    assert len(seen.off) == of.cycles.size
    assert (seen.off <= seen.error).all() and (before.off <= before.error).all()
    assert 6 * seen.error.max() <= before.error.min()
    off = on_lines(monkeypatch, of).off.max()
    if speed is boosts:  # nothing shows when between two anchors they are
        assert seen.off.max() <= off
    else:
        assert (4 if length < 4e7 else 10) * seen.off.max() <= off


@given(
    seed=st.integers(0, 1 << 20),
    length=st.sampled_from([6e5, *LENGTHS]),
    changes=st.integers(1, 300),
    warps=st.sampled_from([1, 2, 7]),
)
@settings(max_examples=12, deadline=None)
def test_no_time_is_beyond_its_bound_where_clocks_jump_at_random(
    seed: int, length: float, changes: int, warps: int
) -> None:
    def steps(sm: int, ns: Float) -> Float:
        rng = np.random.default_rng(seed + sm)
        moments = np.sort(rng.uniform(0, ns[-1], changes))
        return rng.uniform(1.6, 1.98, changes + 1)[np.searchsorted(moments, ns)]

    seen = decoded(known(steps, length, 60, warps))
    assert (seen.off <= seen.error).all()
    assert (np.diff(seen.trace.start_ns)[np.diff(seen.trace.track) == 0] > 0).all() and (seen.trace.dur_ns > 0).all()


@pytest.mark.parametrize("speed", [jumps, brakes])
@pytest.mark.parametrize("length", LENGTHS)
def test_bounds_are_a_few_times_what_a_jump_between_two_anchors_makes(speed: Speed, length: float) -> None:
    seen = decoded(known(speed, length))
    assert seen.error.max() <= 5 * seen.off.max()


def test_bounds_are_what_a_clock_that_swings_between_anchors_makes() -> None:
    length, rounds = 4e7, 250

    def swings(sm: int, ns: Float) -> Float:
        return np.where(ns / length * rounds % 1 < 0.5, 1.98, 1.42)

    seen = decoded(known(swings, length, rounds))
    assert (seen.off <= seen.error).all()
    assert seen.error.max() <= 2 * seen.off.max()


@pytest.mark.parametrize("condition", LIMITS)
def test_limits_of_the_device_test_are_three_times_what_is_simulated(condition: str) -> None:
    limit = LIMITS[condition]
    seen = [decoded(in_condition(condition, speed)) for speed in limit.clocks]
    assert all((one.off <= one.error).all() for one in seen)
    farthest, error = max(one.off.max() for one in seen), max(np.median(one.error) for one in seen)
    assert limit.farthest == pytest.approx(3 * farthest, rel=0.1)
    assert limit.error == pytest.approx(3 * error, rel=0.1)


@pytest.mark.parametrize("speed", [falls, jumps, brakes, boosts, wanders])
def test_spans_never_run_back_and_cycles_are_exact(speed: Speed) -> None:
    of = known(speed, 4e7, 60, 16)
    trace = decoded(of).trace
    assert (trace.warps.curve >= 0).all()
    assert (trace.dur_ns > 0).all()
    assert (np.diff(trace.start_ns)[np.diff(trace.track) == 0] > 0).all()
    assert (trace.dur_cycles == of.cycles[trace.warps.sm[trace.track], trace.warp, trace.value.astype(int)]).all()
    warps = trace.warps
    assert (trace.start_ns >= warps.start_ns[trace.track]).all()
    assert (trace.start_ns + trace.dur_ns <= warps.end_ns[trace.track]).all()


def test_warps_of_an_sm_keep_the_order_of_its_clock() -> None:
    trace = decoded(known(jumps, 4e7, 60, 16)).trace
    for sm in np.unique(trace.warps.sm).tolist():
        mine = trace.warps.sm[trace.track] == sm
        order = np.argsort(trace.start_ticks[mine], kind="stable")
        assert (np.diff(trace.start_ns[mine][order]) > -trace.warps.tick_ns.max()).all()  # to a tick of each warp


@pytest.mark.skipif(not native.available(), reason="kscope was installed without a C compiler")
@pytest.mark.parametrize("speed", [falls, jumps, boosts, wanders])
def test_numpy_finds_the_same_times_and_bounds(speed: Speed, monkeypatch: pytest.MonkeyPatch) -> None:
    of = known(speed, 2.5e6, 60, 4)
    compiled = decoded(of)
    monkeypatch.setenv("KSCOPE_NATIVE", "0")
    plain = decoded(of)
    for name in ("start_ns", "dur_ns", "start_ticks", "dur_cycles"):
        np.testing.assert_array_equal(getattr(compiled.trace, name), getattr(plain.trace, name))
    for name in ("start_ns", "end_ns", "tick_ns", "error_ns", "ends_error_ns"):
        np.testing.assert_array_equal(getattr(compiled.trace.warps, name), getattr(plain.trace.warps, name))
    again = known(speed, 2.5e6, 60, 4)  # the host expands slabs without compiled loops
    assert (again.capture.devices[0].lines == of.capture.devices[0].lines).all()


def loop(warp: Warp, rounds: int, cycles: int) -> None:
    for number in range(rounds):
        with kscope.region("work", value=number):
            warp.work(cycles)


def headers(made: Capture) -> Any:
    slabs, problems = find(made.devices[0].lines, made.epoch)
    assert not problems
    return slabs.header


def ids(made: Capture) -> list[int]:
    rows = made.devices[0].lines.reshape(-1, 4)[layout.HEADER_BYTES // layout.RECORD_BYTES :]
    return [int(row[1]) for row in rows if row[1] in (layout.ANCHOR_ID, layout.LAST_ANCHOR_ID)]


@pytest.mark.parametrize("clock", ["cycles", "globaltimer"])
def test_short_warps_and_warps_that_record_the_timer_have_none(clock: Any) -> None:
    rounds = 100 if clock == "globaltimer" else 1
    made = recorded(loop, recording=Recording(records=256, clock=clock), args=(rounds, EDGE * 3 // 4 - 200), sms=1)
    assert not ids(made) and headers(made)["anchors"].tolist() == [0]


@pytest.mark.parametrize("fill", ["ring", "stop"])
@pytest.mark.parametrize(("records", "rounds"), [(256, 100), (64, 100), (4, 100), (64, 2000)])
def test_records_are_counted_exactly_beside_anchors(records: int, rounds: int, fill: Any) -> None:
    cycles = EDGE // 2 if rounds == 100 else 300
    made = recorded(loop, recording=Recording(records=records, fill=fill), args=(rounds, cycles), sms=1)
    trace = decode(made)
    assert trace.warps.written.tolist() == [rounds]
    anchors = int(headers(made)["anchors"][0])
    assert anchors >= (3 if fill == "ring" else 0) and int(headers(made)["count"][0]) == rounds + anchors
    values = trace.value.tolist()
    assert len(values) >= min(records, rounds) // 2 - 1
    assert values == (list(range(len(values))) if fill == "stop" else list(range(rounds - len(values), rounds)))
    lost = {problem.kind: problem.count for problem in trace.problems if problem.kind in ("overwritten", "refused")}
    dropped = rounds - len(values)
    assert lost == ({} if not dropped else {"refused" if fill == "stop" else "overwritten": dropped})


def test_an_unfinished_warp_keeps_its_anchors() -> None:
    def hangs(warp: Warp) -> None:
        loop(warp, 100, EDGE)
        warp.trap()

    made = recorded(hangs, recording=Recording(records=256), sms=1)
    trace = decode(made)
    assert len(trace) == 100 and headers(made)["anchors"].tolist() == [100]
    assert trace.warps.written.tolist() == [100]


def test_damaged_anchors_change_no_record() -> None:
    rng = np.random.default_rng(3)
    made = recorded(loop, recording=Recording(records=256), args=(100, EDGE), sms=1)
    whole, lines = decode(made), made.devices[0].lines
    rows = lines.reshape(-1, 4)
    for _ in range(40):
        before = lines.copy()
        at = rng.choice(np.flatnonzero(rows[:, 1] == layout.ANCHOR_ID), 20)
        rows[at, rng.integers(0, 4, 20) // 2 * 2 + rng.integers(0, 2, 20)] ^= rng.integers(1, 1 << 32, 20, np.uint32)
        damaged = decode(made)
        kept = [region.known for region in damaged.regions]
        records = [kept[one] for one in damaged.region]
        assert (damaged.dur_cycles[records] == whole.dur_cycles).all()
        assert (damaged.dur_ns[records] >= 0).all()
        lines[:] = before
