"""Times of warps whose SM's clock changed its rate are the same in all tables and files; cycles are the clock's."""

from __future__ import annotations

import csv
import itertools
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated import capture as recorded
from unsteady import SMS, Float, Unsteady, falls, jumps

import kscope
from kscope.analysis.segments import flatten
from kscope.analysis.trust.overhead import RegionCost, compensate
from kscope.analysis.wall import wall_ns
from kscope.analysis.warp_regions import warp_regions
from kscope.capture.capture import Capture
from kscope.decoding.lane_joining import join
from kscope.export.stacks import stacks
from kscope.export.timeline import timeline
from kscope.instrument.recording import Recording
from kscope.marks.strategies import AllThreads, Elected
from kscope.merging.axis import move_to_axis
from kscope.report.scene import gathered, parts, scene
from kscope.trace import Trace, decode
from kscope.tracedata.clock_curves import Curves, Lives
from kscope.tracedata.concatenation import concatenate
from kscope.tracedata.tracks import spread
from kscope_sim import Warp
from kscope_sim.machine import POWER_ON_NS

LENGTH, ROUNDS = 4e6, 20
MACHINE = Unsteady(sms=SMS, speed=jumps, length=LENGTH)
STEP = int(1.7 * LENGTH / ROUNDS / 4)


def tiles(warp: Warp, hangs: bool = False) -> None:
    warp.work(1 + STEP * warp.index)
    for number in range(ROUNDS):
        with kscope.region("tile", value=number):
            warp.work(STEP)
            with kscope.region("load", track="loads" if warp.index else None):
                warp.work(STEP)
            warp.work(STEP // 2)
        warp.work(STEP)
    if hangs:
        warp.trap()


def capture(kernel: Any = tiles, recording: Recording | None = None, **launch: Any) -> Capture:
    recording = recording or Recording(records=256)
    options: dict[str, Any] = {"block": 64, "machine": MACHINE, **launch}
    return recorded(kernel, recording=recording, grid=SMS, **options)


@cache
def trace() -> Trace:
    found = decode(capture())
    assert (found.warps.curve >= 0).all() and len(found) == 2 * ROUNDS * SMS * 2
    assert np.ptp(found.dur_ns[found.dur_cycles == found.dur_cycles.max()]) > 1000  # as many cycles, other times
    return found


def names(of: Trace) -> Any:
    return of.region_names()[of.region]


def test_tables_have_the_times_of_the_trace_and_the_cycles_of_the_clock(tmp_path: Path) -> None:
    one = trace()
    one.export(tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for name in ("start_ns", "dur_ns"):
        np.testing.assert_allclose([float(row[name]) for row in rows], getattr(one, name), atol=6e-4)
    assert [int(row["dur_cycles"]) for row in rows] == one.dur_cycles.tolist()
    assert [int(row["start_ticks"]) for row in rows] == one.start_ticks.tolist()


def test_columns_have_the_times_of_the_trace() -> None:
    pytest.importorskip("pyarrow")
    one, table = trace(), trace().to_arrow()
    for name in ("start_ns", "dur_ns", "start_ticks", "dur_cycles"):
        np.testing.assert_array_equal(table[name].to_numpy(), getattr(one, name))


def test_timelines_have_the_times_of_the_trace() -> None:
    one, drawn = trace(), timeline(trace())
    shift = drawn.origin - one.origin
    np.testing.assert_allclose(drawn.begin[: len(one)] + shift, one.start_ns, atol=0.51)
    np.testing.assert_allclose(drawn.end[: len(one)] + shift, one.start_ns + one.dur_ns, atol=0.51)


def test_a_chrome_trace_has_the_cycles_of_the_clock(tmp_path: Path) -> None:
    trace().export(tmp_path / "x.json")
    events = json.loads((tmp_path / "x.json").read_text())["traceEvents"]
    spans = [event for event in events if event.get("ph") == "X" and event["name"] in ("tile", "load")]
    cycles = [event["args"]["cycles"] for event in spans]
    assert sorted(cycles) == sorted(trace().dur_cycles.tolist())


def test_the_report_draws_the_times_of_the_trace() -> None:
    one = trace()
    shown = scene(one, one.summary())
    found = [part for ranges in parts(shown) for part in gathered(shown, ranges)]
    at = np.concatenate([part.at for part in found])
    begin = np.concatenate([part.begin_ns for part in found]) + shown.drawn.base
    took = np.concatenate([part.dur_ns for part in found])
    np.testing.assert_allclose(begin, one.start_ns[at], atol=1e-3)
    np.testing.assert_allclose(took, one.dur_ns[at], atol=1e-3)


def test_sums_are_those_of_the_trace() -> None:
    one = trace()
    for row in one.summary().regions:
        assert row.warp_time_ns == pytest.approx(one.dur_ns[names(one) == row.region].sum(), abs=1e-3)
    found = warp_regions(one)
    np.testing.assert_allclose(np.sort(found.values), np.sort(one.dur_ns), atol=1e-6)
    wall = wall_ns(one, found, np.arange(len(one.warps)), found.track * len(found.names) + found.name)
    np.testing.assert_allclose(wall, found.total * one.warps.tick_ns[found.track], rtol=1e-6)


@pytest.mark.parametrize("native", ["", "0"])
def test_pieces_of_warps_add_up_to_their_lives(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSCOPE_NATIVE", native)
    one = trace()
    pieces = flatten(one)
    life = np.bincount(pieces.track, pieces.ns)
    np.testing.assert_allclose(life, one.warps.end_ns - one.warps.start_ns, atol=1e-3)
    loads = pieces.ns[np.array([*pieces.names, ""])[pieces.name] == "load"].sum()
    assert loads == pytest.approx(one.dur_ns[names(one) == "load"].sum(), abs=1e-3)


def test_call_trees_have_both_times_and_cycles() -> None:
    one, tree = trace(), {node.name: node for node in stacks(trace())}
    load = names(one) == "load"
    assert tree["load"].ticks == one.dur_cycles[load].sum()
    assert tree["load"].ns == pytest.approx(one.dur_ns[load].sum(), abs=1e-3)
    assert tree["tile"].ticks == one.dur_cycles[~load].sum() - one.dur_cycles[load].sum()
    assert tree["tile"].ns == pytest.approx(one.dur_ns[~load].sum() - one.dur_ns[load].sum(), abs=1e-3)


def test_filters_tracks_and_other_traces_beside_it_keep_times() -> None:
    one = trace()
    loads = one.filter(region="load")
    np.testing.assert_array_equal(loads.start_ns, one.start_ns[names(one) == "load"])
    np.testing.assert_array_equal(loads.dur_ns, one.dur_ns[names(one) == "load"])
    apart, _, _ = spread(one)
    np.testing.assert_allclose(np.sort(apart.dur_ns), np.sort(one.dur_ns))
    other = decode(capture(machine=Unsteady(sms=SMS, speed=falls, length=LENGTH)))
    both = concatenate([one, loads, other], [one.recorded.gpus] * 3, ["", "", ""])
    np.testing.assert_array_equal(both.dur_ns, np.concatenate([one.dur_ns, loads.dur_ns, other.dur_ns]))


def test_on_another_clock_times_keep_their_proportions() -> None:
    one = trace()
    other = move_to_axis(one, {0: lambda ns: (5000 + ns // 1000, np.full(len(ns), 7.0))})
    shift = other.start_ns + (other.origin - one.origin) - one.start_ns
    np.testing.assert_allclose(shift, 5000 + one.start_ns / 1000, atol=2)
    np.testing.assert_allclose(other.dur_ns, one.dur_ns * 1.001, atol=2)
    np.testing.assert_allclose(other.warps.error_ns, one.warps.error_ns + 7)


def test_without_what_marks_cost_spans_are_shorter_and_end_within_their_warps() -> None:
    one, less = trace(), compensate(trace(), RegionCost(30, 10))
    assert (less.dur_ns >= 0).all() and (less.dur_ns <= one.dur_ns + 100).all()
    assert (less.start_ns + less.dur_ns <= less.warps.end_ns[less.track] + 1).all()


def test_ticks_and_times_of_warps_are_inverse_to_each_other() -> None:
    one = trace()
    end = one.start_ticks + one.dur_cycles
    np.testing.assert_array_equal(one.ns_of(one.track, one.start_ticks), one.start_ns)
    np.testing.assert_allclose(one.ns_of(one.track, end), one.start_ns + one.dur_ns, atol=1e-6)
    assert np.abs(one.ticks_of(one.track, one.ns_of(one.track, end)) - end).max() <= 1


@pytest.mark.parametrize("strategy", [AllThreads(), Elected(any_lane=True)])
def test_lanes_have_the_time_of_their_warp(strategy: Any) -> None:
    one = decode(capture(recording=Recording(records=256, strategy=strategy)))
    assert (one.warps.curve >= 0).all() and (one.dur_ns > 0).all()
    life = one.warps.start_ns + (one.warps.last_tick - one.warps.first_tick) * one.warps.tick_ns
    np.testing.assert_allclose(life, one.warps.end_ns, atol=1e-3)
    whole = trace()
    for sm in range(SMS):
        for warp in range(2):
            mine, known = (t.start_ns[(t.sm == sm) & (t.warp == warp) & (names(t) == "tile")] for t in (one, whole))
            lanes = 32 if strategy == AllThreads() else 1
            assert len(mine) == lanes * len(known)
            assert np.abs(np.sort(mine) - np.repeat(np.sort(known), lanes)).max() < 10_000  # their marks cost more


def test_lanes_that_are_joined_have_the_time_of_the_one_that_lived_longest() -> None:
    one = decode(capture(recording=Recording(records=256, strategy=AllThreads()), block=32))
    last = one.warps.last_tick - np.where(one.warps.lane == 0, 1_000_000, 0)
    pace = Lives(one.curves, one.warps.curve, one.warps.first_tick, last).pace()
    ends = one.warps.start_ns + (last - one.warps.first_tick) * pace
    apart = replace(one, warps=replace(one.warps, last_tick=last, tick_ns=pace, end_ns=ends))
    joined = join(apart, np.ones(len(one.warps), bool))
    assert len(joined.warps) == SMS
    np.testing.assert_allclose(np.sort(joined.start_ns), np.sort(one.start_ns), atol=1)
    life = joined.warps.start_ns + (joined.warps.last_tick - joined.warps.first_tick) * joined.warps.tick_ns
    np.testing.assert_allclose(life, joined.warps.end_ns, atol=1e-3)


def test_a_warp_that_hangs_has_times_as_exact_as_the_others() -> None:
    truth = dict[int, float]()

    def hangs(warp: Warp) -> None:
        for _ in range(ROUNDS):
            with kscope.region("tile"):
                warp.work(4 * STEP)
                truth[warp.smid] = MACHINE.ns(warp.smid, warp.now)
        warp.trap()

    made = capture(hangs, block=32)
    one = decode(made)
    assert not one.warps.finished.any() and (one.warps.curve >= 0).all()
    last = np.array([(one.start_ns + one.dur_ns)[one.track == row].max() for row in range(len(one.warps))])
    known = np.array([truth[sm] for sm in one.warps.sm.tolist()])
    off = np.abs(last + (one.origin - POWER_ON_NS) - known)
    assert (off <= one.warps.error_ns).all() and (off < 100).all()
    read = int(LENGTH * 1.15) + POWER_ON_NS  # while they hang
    late = decode(replace(made, devices=tuple(replace(device, read_ns=read) for device in made.devices)))
    ends = late.warps.start_ns + (late.warps.last_tick - late.warps.first_tick) * late.warps.tick_ns
    np.testing.assert_allclose(ends, read - late.origin, atol=2)
    np.testing.assert_allclose(late.start_ns, one.start_ns, atol=1)
    np.testing.assert_allclose(late.dur_ns, one.dur_ns, atol=1)


def random_curve(rng: np.random.Generator) -> Curves:
    counts = rng.integers(2, 40, 5)
    ticks = [np.cumsum(rng.integers(1, 1 << 20, count)) + (1 << 40) for count in counts]
    ns = [np.cumsum(rng.choice([0.0, 0.4, 1.7], count) * 1000) for count in counts]
    after = np.concatenate([one - one[0] for one in ns])
    return Curves(np.concatenate([[0], np.cumsum(counts)]), np.concatenate(ticks), after)


@pytest.mark.parametrize("seed", range(20))
def test_even_ticks_ascend_with_the_clock_and_meet_it_at_both_ends(seed: int) -> None:
    rng = np.random.default_rng(seed)
    curves = random_curve(rng)
    first = curves.tick[curves.first[:-1]] + rng.integers(-1000, 100_000, 5)
    last = first + rng.integers(0, 1 << 24, 5)
    lives = Lives(curves, np.arange(5, dtype=np.int32), first, last)
    for row, (begin, end) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        tick = np.unique(np.append(rng.integers(begin, end + 1, 3000), [begin, end]))
        even = lives.even(np.full(len(tick), row), tick)
        assert (np.diff(even) >= 0).all() and even[0] == begin and even[-1] == end
        of, knots = curves.first[row], curves.tick[curves.first[row] : curves.first[row + 1]]
        inside = tick[(tick >= knots[0]) & (tick <= knots[-1])]
        expected: Float = np.interp(inside, knots, curves.ns[of : curves.first[row + 1]])
        np.testing.assert_allclose(curves.ns_at(np.full(len(inside), row), inside), expected, atol=1e-6)


def test_damaged_lives_make_no_warning() -> None:
    curves = random_curve(np.random.default_rng(2))
    far, near = np.full(5, 1 << 62), np.full(5, 1 << 40)
    for first, last in ((-far, far), (near, far), (far, near), (near + 1, near + 2)):
        lives = Lives(curves, np.arange(5, dtype=np.int32), first, last)
        for tick in (-far, near, far):
            lives.even(np.arange(5), tick)
            lives.uneven(np.arange(5), tick)


def test_joined_curves_are_numbered_one_after_another() -> None:
    rng = np.random.default_rng(1)
    several = [random_curve(rng), Curves.none(), random_curve(rng)]
    joined = Curves.joined(several)
    assert len(joined) == 10
    for number, (of, at) in enumerate(itertools.product((several[0], several[2]), range(5))):
        tick = of.tick[of.first[at] : of.first[at + 1]]
        np.testing.assert_array_equal(
            joined.ns_at(np.full(len(tick), number), tick), of.ns_at(np.full(len(tick), at), tick)
        )
