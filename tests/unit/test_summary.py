"""The summary: numbers as numpy computes them, and a table that fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import synth
import traces
from hypothesis import example, given
from hypothesis import strategies as st
from synth import Rec, instant

from kscope.analysis.warp_stats import warp_ends
from kscope.capture.capture import Capture
from kscope.capture.layout import Kind
from kscope.errors import UsageError
from kscope.export.stacks import stacks
from kscope.marks.names import TRACK
from kscope.trace import Trace, decode
from kscope.util.terminal import time_text


def timed(lengths: list[list[int]], timer: bool = True) -> Trace:
    """One lane per list, with spans of these lengths in ns, one after the other."""
    slabs = []
    for block, spans in enumerate(lengths):
        clock, records = 1000, []
        for span in spans:
            records.append(Rec("load", clock, clock + span))
            clock += span
        slabs.append(
            synth.slab(
                records, log2=7, start=1000, end=max(2000, clock), start_time=1000, end_time=max(2000, clock),
                block=(block, 0, 0), grid=(len(lengths), 1, 1), flags=1 if timer else 0,
            )
        )  # fmt: skip
    return decode(synth.capture(*slabs))


@given(st.lists(st.lists(st.integers(0, 5000), max_size=20), min_size=1, max_size=4))
@example([[0]])
def test_the_numbers_are_those_of_numpy(lengths: list[list[int]]) -> None:
    everything = np.array([span for spans in lengths for span in spans], float)
    found = timed(lengths).summary().regions
    if not len(everything):
        assert found == ()
        return
    [row] = found
    assert (row.kernel, row.region, row.count) == ("matmul", "load", len(everything))
    assert (row.warp_time_ns, row.min_ns, row.max_ns) == (everything.sum(), everything.min(), everything.max())
    assert [row.mean_ns, row.p50_ns, row.p90_ns, row.p99_ns] == pytest.approx(
        [everything.mean(), *np.percentile(everything, (50, 90, 99))]
    )
    lives = sum(max(1000, sum(spans)) for spans in lengths)
    assert row.share == pytest.approx(everything.sum() / lives)
    totals = [sum(spans) for spans in lengths if spans]
    if np.median(totals) > 0:
        assert row.imbalance == pytest.approx(max(totals) / np.median(totals))


def test_kernels_of_one_name_are_distinguished_by_their_hashes() -> None:
    one = synth.slab([Rec("load", 2000, 2100)], grid_id=1)
    two = synth.slab([Rec("load", 2000, 2900), instant("mark", 3000)], grid_id=2, kernel=5)
    modules = (synth.module(("load", "mark")), synth.module(("load", "mark"), kernel=5))
    trace = decode(Capture(synth.EPOCH, (synth.device([one, two]),), modules))
    summary = trace.summary()
    names = ["matmul 0x123456789abcdef0", "matmul 0x5"]
    assert [row.kernel for row in summary.regions] == sorted(row.kernel for row in summary.warps) == names
    assert [row.kernel for row in summary.points] == ["matmul 0x5"]
    assert [line for line in str(summary).splitlines() if line.startswith("matmul")] == names
    assert str(summary).count("1 launch of ") == 2
    for name in names:  # names shown in a table select kernels, and so do hashes
        assert [row.count for row in trace.filter(kernel=name).summary().regions] == [1]
        assert len(trace.filter(kernel=name)) == len(trace.filter(kernel=name.split()[1]))
    assert len(trace.filter(kernel="matmul")) == 3
    with pytest.raises(UsageError, match=f"not in this trace, which has kernel {names[0]}, {names[1]}"):
        trace.filter(kernel="mutmal")


@pytest.mark.parametrize("by", ["", "track"])
def test_filters_do_not_change_the_life_of_an_unfinished_lane(by: str) -> None:
    spans = [Rec("load", 2000, 3000), Rec(f"dot{TRACK}dots", 50_000, 99_000)]
    trace = decode(synth.capture(synth.slab(spans, end=None), names=("load", f"dot{TRACK}dots")))
    life = float((warp_ends(trace) - trace.warps.start_ns)[0])
    assert life == pytest.approx((99_000 - 1000) * trace.warps.tick_ns[0])
    for kept in (trace, trace.filter(region="load"), trace.filter(region="dot")):
        assert {row.alive_ns for row in kept.summary(by).warps if row.warps} == {life}
        assert sum(node.ns for node in stacks(kept)) == pytest.approx(life)


def test_summary_rows_are_grouped_by_kernel_and_sorted_by_total() -> None:
    one = synth.slab([Rec("load", 2000, 2100), Rec("dot", 2200, 2900)])
    two = synth.slab([Rec("load", 2000, 2900)], kernel=5)
    modules = (synth.module(), synth.module(kernel=5, name="attention"))
    summary = decode(Capture(synth.EPOCH, (synth.device([one, two]),), modules)).summary()
    assert [(row.kernel, row.region) for row in summary.regions] == [
        ("attention", "load"),
        ("matmul", "dot"),
        ("matmul", "load"),
    ]
    assert [row["region"] for row in summary.to_dicts()] == ["load", "dot", "load"]


def test_points_are_counted_apart_from_spans() -> None:
    records = [
        instant("mark", 2000),
        instant("mark", 2010),
        *(Rec("queue", 2000 + i, 2000 + i, Kind.COUNTER, i) for i in range(4)),
    ]
    summary = decode(synth.capture(synth.slab(records), names=("mark", ("queue", "u32")))).summary()
    assert [(row.name, row.kind, row.count) for row in summary.points] == [
        ("mark", "instant", 2),
        ("queue", "counter", 4),
    ]
    assert "queue: 4 counters, 0 to 3, mean 1.5" in str(summary)


def test_problems_and_the_clock_are_in_the_table() -> None:
    text = str(decode(synth.capture(synth.slab([Rec("load", 2000, 2100)] * 10), lost=4)).summary())
    assert "! 2 records overwritten by newer ones: to keep all, records=10" in text
    assert "! 4 warps found the pool full" in text
    assert "globaltimer ticks every 1 ns" in text


def test_a_summary_without_records_explains_why() -> None:
    trace = decode(synth.capture())
    assert str(trace.summary()).startswith("no records: kernels with regions were loaded")
    assert [problem.kind for problem in trace.problems] == ["blank"]


def test_unrecorded_autotuning_launches_are_counted() -> None:
    left_out = "40 launches of autotuning left out: they ran without regions"
    for capture in (synth.capture(synth.slab([Rec("load", 2000, 2100)])), synth.capture()):
        for count, lines in ((40, [left_out]), (0, [])):
            summary = decode(replace(capture, tuning_launches=count)).summary()
            assert [note for note in summary.notes if "autotuning" in note] == lines
            assert all(line in str(summary) for line in lines)


def test_shares_of_a_filtered_trace_are_relative_to_its_lanes() -> None:
    trace = timed([[500], [1000]])
    [row] = trace.filter(block=0).summary().regions
    assert row.share == pytest.approx(0.5)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_the_table_fits_its_terminal(width: int) -> None:
    names = ["load", "a name that is much longer than anyone would want to read in a table of numbers", "x"]
    records = [Rec(name, 2000 + i, 9000 + 100 * i) for i, name in enumerate(names)]
    text = decode(synth.capture(synth.slab(records), names=names, lost=1)).summary().text(width)
    assert max(map(len, text.splitlines())) <= width
    assert "count" in text
    assert "warp time" in text


def test_a_wide_terminal_shows_every_column() -> None:
    inside = [Rec("dot", 2100, 2200), Rec("load", 2000, 2900)]
    head = (
        decode(synth.capture(synth.slab(inside)))
        .summary()
        .text(220)
        .splitlines()[3]
        .replace("warp time", "warp_time")
        .split()
    )
    assert head == [
        "region", "count", "warp_time", "wall", "share", "self", "mean", "p50", "p90", "p99", "min", "max", "imbalance",
        "first", "last", "idle",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"), (5.0505, "5.051 ns"), (999.4, "999.4 ns"), (999.99, "1 us"), (1234.0, "1.234 us"),
        (1.5e6, "1.5 ms"), (2.25e9, "2.25 s"), (1.2e13, "12,000 s"), (float("nan"), "-"),
    ],
)  # fmt: skip
def test_times_have_units(ns: float, text: str) -> None:
    assert time_text(ns) == text


def test_the_imbalance_of_a_short_region_is_not_named_before_one_that_costs_time() -> None:
    made = [
        traces.Lane(
            sm=sm, block=sm, end=90_000,
            spans=[("load", 1000, 41_000 + 12_000 * (sm == 2)), ("dot", 60_000, 60_002 + 90 * (sm == 3))],
        )
        for sm in range(4)
    ]  # fmt: skip
    summary = traces.trace(made).summary()
    assert next(row for row in summary.regions if row.region == "dot").imbalance > 40
    told = [line.strip() for line in summary.text(100).splitlines() if "the median" in line]
    assert [line.partition(":")[0] for line in told] == ["load"]
