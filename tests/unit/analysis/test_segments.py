"""A lane's life in exclusive pieces and the analyses built on it, checked nanosecond by nanosecond."""

from __future__ import annotations

import random
import sys
import tracemalloc
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import pytest
import synth
import traces
from hypothesis import given
from hypothesis import strategies as st
from synth import Rec

import kscope
from kscope.analysis import critical_path as paths
from kscope.analysis import gaps, histogram, overlap
from kscope.analysis.critical_path import Edge, critical_path
from kscope.analysis.overlap import NO_REGION
from kscope.analysis.segments import NONE, flatten
from kscope.analysis.warp_stats import warp_ends
from kscope.capture.layout import FLAG_STOP, Kind
from kscope.errors import UsageError
from kscope.trace import decode
from kscope.tracedata.nesting import parents

Made = list[traces.Lane]


def distinct(made: Made) -> bool:
    """The nesting of two equal spans is ambiguous."""
    return all(len({(a, b) for _, a, b in one.spans}) == len(one.spans) for one in made)


@given(st.randoms(use_true_random=False))
def test_every_piece_is_the_innermost_region(rng: random.Random) -> None:
    made = [one for one in traces.lanes(rng) if distinct([one])]
    trace = traces.trace(made)
    pieces = flatten(trace)
    base = traces.origin(made) if made else 0
    for row, block, warp in zip(range(len(trace.warps)), trace.warps.block, trace.warps.warp, strict=True):
        [one] = [one for one in made if (one.block, one.warp) == (block, warp)]
        mine = pieces.track == row
        for time in range(one.start, one.end):
            at = np.flatnonzero(mine & (pieces.start + base <= time) & (time < pieces.end + base))
            assert len(at) == 1
            name = int(pieces.name[at[0]])
            assert (None if name == NONE else pieces.names[name]) == one.innermost(time)


@pytest.mark.parametrize(
    "name", ["attention", "graph", "globaltimer", "lanes", "matmul", "ring", "stop", "warp_specialized"]
)
def test_pieces_of_real_captures_add_up_to_the_lanes_lives(name: str, root) -> None:  # type: ignore[no-untyped-def]  # a path
    trace = kscope.load(root / "tests" / "golden" / f"{name}.kscope")
    pieces = flatten(trace)
    life = warp_ends(trace) - trace.warps.start_ns
    np.testing.assert_allclose(np.bincount(pieces.track, weights=pieces.ns, minlength=len(life)), life, atol=1e-6)


@given(st.randoms(use_true_random=False))
def test_the_parent_of_a_span_is_the_shortest_one_that_holds_it(rng: random.Random) -> None:
    made = [one for one in traces.lanes(rng) if distinct([one]) and one.spans]
    for one in made:
        start, end = (np.array([span[column] for span in one.spans]) for column in (1, 2))
        parent = parents(start, end, np.zeros(len(start), np.int32))
        for index, (a, b) in enumerate(zip(start, end, strict=True)):
            around = [
                (d - c, n) for n, (c, d) in enumerate(zip(start, end, strict=True)) if c <= a and b <= d and n != index
            ]
            assert parent[index] == min(around, default=(0, -1))[1]


@given(st.randoms(use_true_random=False))
def test_the_overlap_matrix_matches_a_count_of_warp_pairs(rng: random.Random) -> None:
    made = [one for one in traces.lanes(rng, warps=3) if one.spans and distinct([one])]
    if not made:
        return
    [found] = overlap.overlap(traces.trace(made), {"all": range(32)})
    index = {region: number for number, (_, region) in enumerate(found.states)}
    want = np.zeros_like(found.ns)
    alone = np.zeros(len(index))
    for one in made:
        others = [other for other in made if other is not one and other.block == one.block]
        for time in range(one.start, one.end):
            here = index[one.innermost(time) or NO_REGION]
            there = [index[other.innermost(time) or NO_REGION] for other in others if other.start <= time < other.end]
            alone[here] += not there
            for state in there:
                want[here, state] += 1
    np.testing.assert_allclose(found.ns, want, atol=1e-6)
    np.testing.assert_allclose(found.alone_ns, alone, atol=1e-6)
    np.testing.assert_allclose(found.ns, found.ns.T)


@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_sweeping_a_block_in_slices_gives_the_same_overlaps(rng: random.Random, cells: int) -> None:
    trace = traces.trace([one for one in traces.lanes(rng, warps=4) if one.spans])
    whole = overlap.overlap(trace)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(overlap, "_CELLS", cells)
        patched.setenv("KSCOPE_NATIVE", "0")
        sliced = overlap.overlap(trace)
    for one, other in zip(whole, sliced, strict=True):
        np.testing.assert_allclose(one.ns, other.ns, atol=1e-6)
        np.testing.assert_allclose(one.alone_ns, other.alone_ns, atol=1e-6)


def test_critical_path_memory_depends_on_records_not_region_count() -> None:
    def peak(names: int) -> int:
        slabs = []
        for warp in range(4):
            spans = [Rec(f"r{at % names}", 1000 + 20 * at, 1015 + 20 * at) for at in range(1 << 12)]
            slabs.append(synth.slab(spans, log2=12, warp=warp, end=100_000))
        trace = decode(synth.capture(*slabs, names=[f"r{number}" for number in range(names)]))
        tracemalloc.start()
        overlap.overlap(trace)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(64) < 1.5 * peak(8)


def pipeline() -> Made:
    """A producer that loads for 100 ns, twice, and a consumer that waits for each load and works for 40 ns."""
    producer = traces.Lane(warp=0, end=1300, spans=[("load", 1000, 1100), ("load", 1110, 1210)])
    consumer = traces.Lane(warp=1, end=1300)
    consumer.spans = [("wait", 1000, 1105), ("dot", 1105, 1145), ("wait", 1145, 1215), ("dot", 1215, 1255)]
    return [producer, consumer]


def test_waits_are_attributed_to_the_producers_regions() -> None:
    found = overlap.waits(traces.trace(pipeline()), roles={"producer": [0], "consumer": [1]})
    [wait] = [row for row in found if row.region == "wait"]
    assert (wait.role, wait.warp_time_ns) == ("consumer", 175)
    parts = {(role, region): part for role, region, part in wait.beside}
    assert parts == pytest.approx({("producer", "load"): 165 / 175, ("producer", NO_REGION): 10 / 175})


def test_a_wait_may_be_named() -> None:
    found = overlap.waits(traces.trace(pipeline()), wait="dot")
    assert {row.region for row in found} == {"dot", NO_REGION}
    with pytest.raises(UsageError, match="wait='dots': no such region; this trace has dot, load, wait"):
        overlap.waits(traces.trace(pipeline()), wait="dots")


def test_the_longest_gap_has_its_place_and_concurrent_regions() -> None:
    made = pipeline()
    made[0].spans[1] = ("load", 1180, 1210)
    gap, *_ = gaps.longest(traces.trace(made), top=3)
    assert (gap.warp, gap.after, gap.before, gap.ns, gap.start_ns) == ("block 0 warp 0", "load", "(end)", 90, 210)
    second = gaps.longest(traces.trace(made), top=3)[1]
    assert (second.after, second.before, second.ns) == ("load", "load", 80)
    assert dict(second.beside) == pytest.approx({"wait": 40 / 80, "dot": 40 / 80})


@given(st.randoms(use_true_random=False))
def test_gaps_between_regions_add_up_to_the_idle_time_of_the_summary(rng: random.Random) -> None:
    trace = traces.trace([one for one in traces.lanes(rng) if one.spans])
    total = sum(row.warp_time_ns for row in gaps.gaps_by_neighbors(trace))
    assert total == pytest.approx(sum(row.idle_ns for row in trace.summary().warps))


@given(st.randoms(use_true_random=False), st.sampled_from(traces.NAMES))
def test_gaps_in_a_region_add_up_to_its_self_time(rng: random.Random, name: str) -> None:
    trace = traces.trace([one for one in traces.lanes(rng) if one.spans])
    own = {row.region: row.self_ns for row in trace.summary().regions}
    if name in own:
        assert sum(row.warp_time_ns for row in gaps.gaps_by_neighbors(trace, name)) == pytest.approx(own[name])
    else:
        with pytest.raises(UsageError, match="no such region"):
            gaps.gaps_by_neighbors(trace, name)


def test_the_critical_path_goes_from_waits_to_their_signals() -> None:
    path = critical_path(traces.trace(pipeline()), [Edge("load", "wait")])
    assert [(step.kind, step.warp, step.start_ns, step.end_ns) for step in path.steps] == [
        ("run", "block 0 warp 0", 0, 210),
        ("flight", "block 0 warp 1", 210, 215),
        ("run", "block 0 warp 1", 215, 255),
    ]
    parts = {name: ns for name, ns, _ in path.parts}
    assert parts == {"load": 200, NO_REGION: 10, "load -> wait (in flight)": 5, "dot": 40}
    assert (path.total_ns, path.unmatched) == (255, 0)


@pytest.mark.parametrize(("kept", "fill"), [("all", 0), ("the newest", 0), ("the oldest", FLAG_STOP)])
def test_waits_are_not_counted_on_lanes_that_lost_their_first(kept: str, fill: int) -> None:
    asks = [Rec("ask", 2000 + 1000 * n, 2900 + 1000 * n) for n in range(8)]
    waits = [Rec("wait", 2000 + 1000 * n, 2950 + 1000 * n) for n in range(8)]
    consumer = synth.slab(waits, warp=1, flags=fill, log2=3 if kept == "all" else 2)
    trace = decode(synth.capture(synth.slab(asks, flags=fill), consumer, names=("ask", "wait")))
    if kept == "the newest":
        with pytest.raises(UsageError, match="ask:wait: 1 warp lost the first records"):
            critical_path(trace, [Edge("ask", "wait")])
    else:
        path = critical_path(trace, [Edge("ask", "wait")])
        assert path.unmatched == 0
        assert {name: ns for name, ns, _ in path.parts}["ask"] > 0


def test_overwritten_waits_with_values_find_their_signals() -> None:
    asks = [Rec("ask", 2000 + 1000 * n, 2900 + 1000 * n, Kind.SPAN_VALUE, n) for n in range(8)]
    waits = [Rec("wait", 2000 + 1000 * n, 2950 + 1000 * n, Kind.SPAN_VALUE, n) for n in range(8)]
    slabs = synth.slab(asks), synth.slab(waits, warp=1, log2=2)
    path = critical_path(decode(synth.capture(*slabs, names=(("ask", "i32"), ("wait", "i32")))), [Edge("ask", "wait")])
    assert path.unmatched == 0 and [step.kind for step in path.steps].count("flight") == 1


def test_the_critical_path_stays_on_a_warp_without_blocked_waits() -> None:
    made = pipeline()
    made[1].spans = [("wait", 1150, 1152), ("dot", 1152, 1200), ("wait", 1240, 1242), ("dot", 1242, 1290)]
    [step] = critical_path(traces.trace(made), [Edge("load", "wait")]).steps
    assert (step.kind, step.warp, step.end_ns) == ("run", "block 0 warp 1", 290)


def test_a_lag_skips_waits_in_the_first_rounds() -> None:
    producer = traces.Lane(warp=0, end=1600)
    producer.spans = [("wait", 1000, 1002), ("load", 1002, 1010), ("wait", 1010, 1195), ("load", 1195, 1205)]
    consumer = traces.Lane(warp=1, end=1600)
    consumer.spans = [("tile", 1045, 1050), ("dot", 1050, 1190), ("tile", 1190, 1207), ("dot", 1207, 1400)]
    path = critical_path(traces.trace([producer, consumer]), [Edge("dot", "wait", 1), Edge("load", "tile")])
    assert [step.via for step in path.steps] == ["", "dot -> wait", "", "load -> tile", ""]
    assert path.unmatched == 0


def test_the_critical_path_has_one_step_per_wait() -> None:
    def lines_run(rounds: int) -> int:
        asker, answerer = traces.Lane(warp=0), traces.Lane(warp=1)
        for start in range(1000, 1000 + 200 * rounds, 200):
            asker.spans += [("load", start, start + 50), ("wait", start + 50, start + 150)]
            answerer.spans += [("tile", start - 40 * (start > 1000), start + 55), ("dot", start + 60, start + 140)]
        slabs = [
            synth.slab([Rec(*span) for span in one.spans], log2=13, start=1000, end=2_000_000, warp=one.warp)
            for one in (asker, answerer)
        ]
        trace = decode(synth.capture(*slabs, names=traces.NAMES))
        count = 0

        def line(frame: FrameType, event: str, _: object) -> Any:
            nonlocal count
            count += event == "line"
            return line if frame.f_code.co_filename == paths.__file__ else None

        before = sys.gettrace()
        sys.settrace(line)
        try:
            path = critical_path(trace, [Edge("load", "tile"), Edge("dot", "wait")])
        finally:
            sys.settrace(before)
        assert (len(path.steps), path.unmatched) == (4 * rounds + 1, 0)
        return count

    assert 4000 < lines_run(4000) < 9 * lines_run(500)  # 8 where it is linear, 64 where it is quadratic


def test_a_signal_after_the_end_of_its_wait_is_reported_as_unmatched() -> None:
    made = pipeline()
    made[1].spans[0] = ("wait", 1000, 1050)
    assert critical_path(traces.trace(made), [Edge("load", "wait")]).unmatched == 1


@given(st.randoms(use_true_random=False))
def test_the_critical_path_is_contiguous_and_ends_with_the_last_region(rng: random.Random) -> None:
    made = [one for one in traces.lanes(rng, blocks=1, warps=3) if one.spans]
    used = {name for one in made for name, _, _ in one.spans}
    if not {"load", "wait", "dot"} <= used:
        return
    path = critical_path(traces.trace(made), [Edge("load", "wait"), Edge("dot", "wait", 1), Edge("wait", "load")])
    assert path.steps[-1].end_ns == max(end for one in made for _, _, end in one.spans) - traces.origin(made)
    assert all(a.end_ns == pytest.approx(b.start_ns) for a, b in zip(path.steps, path.steps[1:], strict=False))
    assert sum(ns for _, ns, _ in path.parts) == pytest.approx(path.total_ns)


@pytest.mark.parametrize(
    ("edge", "block", "message"),
    [
        (Edge("loda", "wait"), 0, "loda:wait: no region 'loda' in this block, which has dot, load, wait"),
        (Edge("load", "wait", -1), 0, "a lag of 0 or more"),
        (Edge("load", "wait"), 9, "block 9: not in this trace, which has block 0"),
    ],
)
def test_invalid_critical_path_arguments_are_refused(edge: Edge, block: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        critical_path(traces.trace(pipeline()), [edge], block=block)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50), st.integers(1, 40))
def test_a_histogram_counts_every_span_once(lengths: list[int], bins: int) -> None:
    one, time = traces.Lane(), 1000
    for length in lengths:
        one.spans.append(("load", time, time + length))
        time += length
    one.end = time
    [found] = histogram.histograms(traces.trace([one]), bins)
    assert (len(found.edges_ns), found.counts.sum()) == (bins + 1, len(lengths))
    assert found.edges_ns[0] == min(lengths)
    for k, (low, high) in enumerate(zip(found.edges_ns, found.edges_ns[1:], strict=False)):
        last = k == bins - 1
        assert found.counts[k] == sum(low <= length < high or (last and length == high) for length in lengths)


def test_gaps_with_damaged_clocks_have_no_share() -> None:
    """Far from 0, nearby times round to the same double."""
    trace = traces.trace([traces.Lane(end=3000, spans=[("load", 1010, 1020), ("tile", 1005, 1030)])])
    far = replace(trace, warps=replace(trace.warps, start_ns=trace.warps.start_ns + 2.0**60))
    assert [row.share for row in gaps.gaps_by_neighbors(far, "tile")] == [0.0, 0.0]


def test_regions_that_adjoin_another_are_not_around_its_gaps() -> None:
    one = traces.Lane(end=1400)
    one.spans = [("wait", 1000, 1100), ("load", 1150, 1160), ("tile", 1100, 1200), ("dot", 1200, 1400)]
    found = gaps.gaps_by_neighbors(traces.trace([one]), "tile")
    assert {(row.after, row.before, row.warp_time_ns) for row in found} == {
        ("(begin)", "load", 50),
        ("load", "(end)", 40),
    }
