"""begin() and end(): spans of work in flight, from one warp, iteration or function to another."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import kscope
from kscope.errors import UsageError
from kscope_sim import Warp, launch


def recorded(kernel, block: int = 64, **options) -> kscope.Trace:
    with kscope.profile(**options) as prof:
        launch(kernel, block=block)
    return prof.trace


def unpaired(trace: kscope.Trace) -> list[str]:
    return [one.text for one in trace.problems if one.kind == "unpaired"]


def between_warps(warp: Warp) -> None:
    """Warp 0 issues three copies at once; warp 1 sees them land."""
    if warp.index == 0:
        for k in range(6):
            kscope.begin("copy", k)
            warp.work(50)
            warp.arrive(("issued", k))
    else:
        for k in range(6):
            warp.wait(("issued", k))
            warp.work(400)
            landed(k)


def landed(k: int) -> None:
    kscope.end("copy", key=k)


def test_a_span_begins_in_one_warp_and_ends_in_another_and_in_another_function() -> None:
    trace = recorded(between_warps)
    assert trace.region_names()[trace.region].tolist() == ["copy"] * 6
    assert set(trace.warp.tolist()) == {0}, "it is the span of the warp that began it"
    assert sorted(trace.value.tolist()) == [0, 1, 2, 3, 4, 5]
    assert (np.diff(np.sort(trace.dur_cycles)) > 300).all(), "each waits for the one before"
    assert not unpaired(trace)


def test_spans_may_be_open_at_once_and_take_separate_rows_in_a_timeline(tmp_path: Path) -> None:
    trace = recorded(between_warps)
    start, end = trace.start_ticks, trace.start_ticks + trace.dur_cycles
    assert max(int(((start <= at) & (at < end)).sum()) for at in start) == 6
    trace.export(str(tmp_path / "x.json"))
    found = json.loads((tmp_path / "x.json").read_text())["traceEvents"]
    rows = {event["tid"] for event in found if event["ph"] == "X" and event["name"] == "copy"}
    assert len(rows) == 6
    names = [event["args"]["name"] for event in found if event["ph"] == "M" and event["name"] == "thread_name"]
    assert sum("copy" in name for name in names) == 6


def test_the_warp_does_something_else_meanwhile() -> None:
    def kernel(warp: Warp) -> None:
        with kscope.region("outer"):
            kscope.begin("copy", 1)
            with kscope.region("inner"):
                warp.work(500)
            kscope.end("copy", 1)

    trace = recorded(kernel, 32)
    names = trace.region_names()[trace.region]
    assert trace.depth[names == "inner"].tolist() == [1], "in outer, and not in copy"
    rows = {row.region: row for row in trace.summary().regions}
    assert rows["outer"].self_ns > 0
    assert rows["inner"].warp_time_ns < rows["copy"].warp_time_ns < rows["outer"].warp_time_ns


def test_of_spans_with_one_key_the_oldest_ends_first() -> None:
    def kernel(warp: Warp) -> None:
        for _ in range(3):
            kscope.begin("copy")
            warp.work(100)
        for _ in range(3):
            kscope.end("copy")
            warp.work(1000)

    trace = recorded(kernel, 32)
    assert trace.dur_cycles[np.argsort(trace.start_ticks)].tolist() == pytest.approx([321, 1221, 2121], abs=30)


def test_what_never_ended_and_what_never_began_is_exact() -> None:
    def kernel(warp: Warp) -> None:
        kscope.begin("copy", 1)
        kscope.begin("copy", 2)
        kscope.end("copy", 2)
        kscope.end("copy", 3)
        kscope.end("other", 1)

    trace = recorded(kernel, 64)
    names = sorted(trace.region_names()[trace.region].tolist())
    assert (
        names
        == ["copy"] * 2 + ["copy (ended, not begun)"] * 2 + ["copy (not ended)"] * 2 + ["other (ended, not begun)"] * 2
    )
    assert sorted(unpaired(trace)) == [
        "2 spans 'copy': begin without an end in its block, with the same key",
        "2 spans 'copy': end without a begin in its block, with the same key",
        "2 spans 'other': end without a begin in its block, with the same key",
    ]


def test_blocks_do_not_end_each_others_spans() -> None:
    def kernel(warp: Warp) -> None:
        if warp.block[0] == 0:
            kscope.begin("copy", 1)
        else:
            kscope.end("copy", 1)

    with kscope.profile() as prof:
        launch(kernel, grid=2, block=32)
    assert len(unpaired(prof.trace)) == 2


def test_predicates_and_strategies_are_those_of_every_mark() -> None:
    def kernel(warp: Warp) -> None:
        for k in range(4):
            kscope.begin("copy", k, when=k % 2 == 0)
            with warp.where([5, 6]):
                kscope.end("copy", k, when=k % 2 == 0, strategy=kscope.Elected(any_lane=True))
        kscope.begin("never", when=False)

    trace = recorded(kernel, 32)
    assert sorted(trace.value.tolist()) == [0, 2]
    assert not unpaired(trace)


def test_keys_may_be_floats_and_none() -> None:
    def kernel(warp: Warp) -> None:
        kscope.begin("copy", 1.5)
        kscope.end("copy", 1.5)

    assert recorded(kernel, 32).value.tolist() == [1.5]


def test_a_name_must_be_a_constant() -> None:
    with pytest.raises(UsageError, match="known at compile time"):
        kscope.begin(3)
    with pytest.raises(UsageError, match="known at compile time"):
        kscope.end(None)


def test_a_capture_keeps_them(tmp_path: Path) -> None:
    file = tmp_path / "x.kscope"
    with kscope.profile(str(file)) as prof:
        launch(between_warps, block=64)
    loaded = kscope.load(file)
    assert np.array_equal(loaded.dur_cycles, prof.trace.dur_cycles)
    assert len(loaded.filter(region="copy")) == 6
