""".pftrace files, read back through Perfetto's own protobuf classes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synth
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import Replay, Slice, replay
from synth import Rec, instant

import kscope.export.perfetto.pftrace as pftrace
from kscope.capture.capture import Capture
from kscope.capture.layout import Kind
from kscope.errors import UsageError
from kscope.trace import Trace, decode

NAMES = ("load", ("dot", "i32"), "mark", ("queue", "f32"), "tile")


def exported(trace: Trace, tmp_path: Path, **options: int | None) -> Replay:
    trace.export(tmp_path / "x.pftrace", **options)
    found = replay(tmp_path / "x.pftrace")
    assert found.in_order
    assert found.stray_ends == found.unfinished == 0
    return found


def spans(found: Replay) -> list[Slice]:
    return [one for one in found.slices if one.name != "no records"]


def bulk(slabs: int, records: int, waves: int = 1) -> Trace:
    device = synth.device(synth.bulk(slabs, records, waves=waves), tick_ns=32)
    return decode(Capture(synth.EPOCH, (device,), (synth.module(("load", "dot", "tile")),)))


def expected(trace: Trace) -> Counter[tuple[str, str, int, int]]:
    """(lane, name, depth, ns) of every span, rounded as integers round."""
    labels = trace.warps.labels(np.arange(len(trace.warps))).strings()
    names = trace.region_names()[trace.region]
    ns = (np.rint(trace.start_ns + trace.dur_ns) - np.rint(trace.start_ns)).astype(int)
    return Counter(
        (labels[track], name, depth, dur)
        for track, name, depth, dur in zip(trace.track, names, trace.depth, ns, strict=True)
    )


@pytest.mark.parametrize(("slabs", "records", "waves"), [(1, 1, 1), (50, 30, 1), (200, 40, 10)])
def test_every_span_is_there_with_its_track_name_depth_and_duration(
    slabs: int, records: int, waves: int, tmp_path: Path
) -> None:
    trace = bulk(slabs, records, waves)
    found = exported(trace, tmp_path)
    assert Counter((one.lane, one.name, one.depth, one.dur) for one in spans(found)) == expected(trace)
    assert len(found.slices) == slabs * records


def test_window_size_does_not_change_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = bulk(100, 100, 5)
    whole = exported(trace, tmp_path)
    monkeypatch.setattr(pftrace, "WINDOW", 512)
    assert exported(trace, tmp_path).slices == whole.slices


def test_rows_of_the_first_launch_are_below_the_gpu_and_later_ones_in_their_launches(tmp_path: Path) -> None:
    slabs = [
        synth.slab([Rec("load", 2000, 2100)], sm=12, block=(3, 1, 0), grid=(4, 2, 1), warp=2, lane=5, grid_id=number)
        for number in (1, 2)
    ]
    found = exported(decode(synth.capture(*slabs)), tmp_path)
    assert sorted(one.track for one in spans(found)) == [
        ("synthetic", "SM 12 · block 3,1 warp 2 lane 5"),
        ("synthetic", "matmul #1", "SM 12", "block 3,1 warp 2 lane 5"),
    ]
    assert [one.track for one in found.launches] == [("synthetic", "matmul #0"), ("synthetic", "matmul #1")]


def test_a_launch_is_a_slice_with_its_facts(tmp_path: Path) -> None:
    slabs = [
        synth.slab([Rec("load", 2000, 2100)], sm=block, block=(block, 0, 0), grid=(8, 1, 1), warp=warp)
        for block in range(2) for warp in range(3)
    ]  # fmt: skip
    trace = decode(synth.capture(*slabs))
    [one] = exported(trace, tmp_path).launches
    expected = {"grid": "8 x 1 x 1", "blocks": "2 of 8 recorded", "warps": 6, "records": 6, "SMs": 2}
    assert expected.items() <= one.args.items()
    ends = trace.warps.end_ns.max() - trace.warps.start_ns.min()
    assert (one.name, one.start, one.dur) == ("matmul", 0, pytest.approx(ends, abs=1))


def test_a_row_has_what_is_known_about_its_warp(tmp_path: Path) -> None:
    slab = synth.slab([Rec("load", 2000, 2100)], sm=12, warp=2, cluster=1)
    [note] = [note for path, note in exported(decode(synth.capture(slab)), tmp_path).notes.items() if "SM" in path[-1]]
    assert note.startswith(
        "role load (warp 2, inferred), sm 12, linear_block 0, warp 2, cluster 0, cluster_rank 1, start_ns 0, "
    )
    assert ", records 1, " in note


def test_launches_and_sms_are_in_numerical_order(tmp_path: Path) -> None:
    slabs = [
        synth.slab(
            [Rec("load", at, at + 100)], sm=(0, 2, 10, 131)[n % 4], grid_id=n + 1, start=at - 1000, end=at + 1000
        )
        for n, at in enumerate(range(2_000, 122_000, 10_000))
    ]
    found = exported(decode(synth.capture(*slabs)), tmp_path)
    ranks = sorted((rank, path[1]) for path, rank in found.ranks.items() if len(path) == 2)
    first = ["matmul #0", "SM 0 · block 0 warp 0"]
    assert [name for _, name in ranks] == [*first, *(f"matmul #{n}" for n in range(1, 12))]


def test_rows_are_in_order_of_sm_block_and_warp_each_before_its_counters(tmp_path: Path) -> None:
    records = [Rec("load", 2000, 2100), Rec("queue", 2400, 2400, Kind.COUNTER, 1)]
    slabs = [
        synth.slab(records, sm=sm, warp=warp, block=(sm, 0, 0), grid=(20, 1, 1))
        for sm, warp in ((10, 1), (9, 3), (10, 0), (9, 2))
    ]
    found = exported(decode(synth.capture(*slabs, names=NAMES)), tmp_path)
    rows = [f"SM {sm} · block {sm} warp {warp}" for sm, warp in ((9, 2), (9, 3), (10, 0), (10, 1))]
    expected = ["matmul #0", *(name for row in rows for name in (row, f"{row} · queue"))]
    shown = [path[1] for _, path in sorted((rank, path) for path, rank in found.ranks.items())[1:]]
    assert [name for name in shown if "problems" not in name] == expected


def test_values_instants_and_counters_are_shown(tmp_path: Path) -> None:
    half = int(np.float32(0.5).view(np.uint32))
    records = [
        Rec("load", 2000, 2100),
        Rec("dot", 2200, 2300, Kind.SPAN_VALUE, 0xFFFFFFFE),
        instant("mark", 2310),
        instant("dot", 2320, 7),
        Rec("queue", 2400, 2400, Kind.COUNTER, half),
    ]
    found = exported(decode(synth.capture(synth.slab(records), names=NAMES)), tmp_path)
    assert {one.name: one.value for one in spans(found)} == {"load": None, "dot": -2}
    assert [(name, value) for _, name, _, value in found.instants if name in ("mark", "dot")] == [
        ("mark", None),
        ("dot", 7),
    ]
    [(track, _, value)] = found.counters
    assert track == ("synthetic", "SM 0 · block 0 warp 0 · queue")
    assert value == 0.5


def test_problems_are_instants_on_the_last_row_of_the_gpu(tmp_path: Path) -> None:
    trace = decode(synth.capture(synth.slab([Rec("load", 2000, 2100)] * 9), lost=3))
    found = exported(trace, tmp_path)
    shown = [
        (name, time) for track, name, time, _ in found.instants if track == ("synthetic", "problems of this recording")
    ]
    assert shown == [(f"{problem.kind}: {problem.text}", 0) for problem in trace.problems]
    assert {problem.kind for problem in trace.problems} == {"lost", "overwritten"}
    assert max(found.ranks, key=lambda path: found.ranks[path])[-1] == "problems of this recording"


def test_an_unfinished_warp_is_marked_in_its_name(tmp_path: Path) -> None:
    [span] = spans(exported(decode(synth.capture(synth.slab([Rec("load", 2000, 2100)], end=None))), tmp_path))
    assert span.lane == "block 0 warp 0 (unfinished)"


def test_only_warps_without_records_have_a_slice_of_their_whole_life(tmp_path: Path) -> None:
    trace = decode(synth.capture(synth.slab([Rec("load", 2000, 2100)]), synth.slab([], warp=1)))
    found = exported(trace, tmp_path)
    assert {(one.lane, one.name) for one in found.slices} == {
        ("block 0 warp 0", "load"),
        ("block 0 warp 1", "no records"),
    }
    [life] = [one for one in found.slices if one.name == "no records"]
    assert life.dur == pytest.approx(trace.warps.end_ns[1] - trace.warps.start_ns[1], abs=1)


def test_every_slice_and_instant_has_its_source_line(tmp_path: Path) -> None:
    trace = decode(synth.capture(synth.slab([Rec("load", 2000, 2100), Rec("tile", 2200, 2300)]), names=NAMES))
    regions = tuple(replace(one, where=f"attn.py:{7 + len(one.name)}") for one in trace.regions)
    found = exported(replace(trace, regions=regions), tmp_path)
    assert {one.name: one.args["where"] for one in found.slices} == {"load": "attn.py:11", "tile": "attn.py:11"}


def test_spans_of_unknown_duration_become_marked_instants(tmp_path: Path) -> None:
    trace = decode(synth.capture(synth.slab([Rec("load", 2000, 2100 + (1 << 32))], end=2 << 32)))
    found = exported(trace, tmp_path)
    assert not spans(found)
    assert "load (duration unknown)" in [name for _, name, _, _ in found.instants]


def test_spans_that_cross_go_to_a_further_track(tmp_path: Path) -> None:
    records = [Rec("load", 3000, 5000), Rec("tile", 4000, 9000), Rec("dot", 8000, 9500)]
    found = exported(decode(synth.capture(synth.slab(records), names=NAMES)), tmp_path)
    assert {(one.name, one.lane) for one in spans(found)} == {
        ("load", "block 0 warp 0"), ("tile", "block 0 warp 0 (2)"), ("dot", "block 0 warp 0"),
    }  # fmt: skip
    assert {one.name: one.dur for one in spans(found)} == pytest.approx({"load": 1010, "tile": 2525, "dot": 758}, abs=1)


def test_pauses_of_hours_keep_their_length(tmp_path: Path) -> None:
    hour = 3600 * 1980 * 10**6
    slabs = [
        synth.slab([Rec("load", at + 2000, at + 2100)], start=at, end=at + 9000, grid_id=at + 1)
        for at in (0, hour, 30 * hour)
    ]
    found = exported(decode(synth.capture(*slabs)), tmp_path)
    starts = [one.start for one in spans(found)]
    assert np.diff(starts) == pytest.approx([3600e9, 29 * 3600e9], rel=1e-6)


def test_times_are_unix_ns(tmp_path: Path) -> None:
    trace = decode(synth.capture(synth.slab([Rec("load", 2000, 2100)])))
    assert exported(trace, tmp_path).realtime == pytest.approx(trace.origin, abs=10)


def test_an_empty_trace_is_a_file(tmp_path: Path) -> None:
    assert exported(decode(synth.capture()), tmp_path).slices == []


def test_a_limit_keeps_the_earliest_records_and_reports_the_rest(tmp_path: Path) -> None:
    trace = bulk(20, 30, 4)
    found = exported(trace, tmp_path, limit=100)
    assert len(spans(found)) == 100
    [(_, text, time, _)] = [one for one in found.instants if "limited" in one[1]]
    assert "500 of 600 records left out" in text
    assert time == 0
    first = np.sort(trace.start_ns)[:100]
    assert max(one.start for one in spans(found)) <= first[-1] - trace.warps.start_ns.min() + 1


def test_a_filtered_trace_shows_only_its_lanes(tmp_path: Path) -> None:
    found = exported(bulk(20, 30).filter(block=1, region="tile"), tmp_path)
    assert {one.name for one in found.slices} == {"tile"}
    assert {one.lane.rsplit(" warp", 1)[0] for one in found.slices} == {"block 1"}


def test_large_exports_warn_and_too_large_ones_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import kscope.export as export

    trace = bulk(10, 30)
    monkeypatch.setattr(export, "MANY_SLICES", 200)
    with pytest.warns(UserWarning, match="300 slices take a viewer"):
        trace.export(tmp_path / "x.pftrace", limit=None)
    monkeypatch.setattr(export, "MAX_SLICES", 250)
    with pytest.raises(UsageError, match="force=True"):
        trace.export(tmp_path / "x.pftrace", limit=None)
    with pytest.warns(UserWarning, match="300 slices"):
        trace.export(tmp_path / "x.pftrace", limit=None, force=True)


@pytest.mark.parametrize("limit", [0, -3, True, "all"])
def test_non_numeric_limits_are_refused(limit: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a positive number of records, None for all"):
        bulk(1, 3).export(tmp_path / "x.pftrace", limit=limit)


def test_an_unknown_suffix_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'x\.pdf': unknown suffix; expected one of \.pftrace, \.pftrace\.gz, "):
        bulk(1, 3).export(tmp_path / "x.pdf")


def test_a_failed_export_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.pftrace"
    bulk(1, 3).export(path)
    before = path.read_bytes()
    monkeypatch.setattr(pftrace, "head", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bulk(2, 3).export(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@given(data=st.data())
@settings(max_examples=25)
def test_any_recording_exports_to_perfetto(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any records at all, crossing ones too: as many slices as spans, each with its length."""
    slabs, count = [], 0
    for block in range(data.draw(st.integers(1, 3))):
        ends = sorted(data.draw(st.lists(st.integers(0, 40), max_size=8)))
        records = [
            Rec(data.draw(st.sampled_from(["load", "tile"])), data.draw(st.integers(0, end)), end) for end in ends
        ]
        records = [
            replace(record, start=record.start * 1980 + 5000, end=record.end * 1980 + 5000) for record in records
        ]
        count += len(records)
        slabs.append(synth.slab(records, log2=3, block=(block, 0, 0), grid=(3, 1, 1)))
    trace = decode(synth.capture(*slabs, names=NAMES))
    found = exported(trace, tmp_path_factory.mktemp("any"))
    assert len(spans(found)) == count
    names, lengths = trace.region_names()[trace.region], np.rint(trace.dur_ns)
    for name in ("load", "tile"):
        shown = sorted(one.dur for one in spans(found) if one.name == name)
        assert shown == pytest.approx(sorted(lengths[names == name]), abs=1)
