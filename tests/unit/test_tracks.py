"""Tracks of the user's: from track= in a kernel to columns, tables and rows of a timeline."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import synth
from hypothesis import given, settings
from hypothesis import strategies as st

import kscope
import kscope_sim
from kscope.capture import layout
from kscope.capture.model import KernelMeta, ModuleMeta, RegionMeta
from kscope.decoding.ids import Names
from kscope.errors import UsageError
from kscope.export import timeline
from kscope.marks import grammar
from kscope.marks.names import TRACK, check_name, format_name, split
from kscope.trace import Trace, decode

PRE = kscope.scope("load", track="loads")
NAMES = st.text(min_size=1, max_size=40).filter(lambda text: TRACK not in text)


def overlaps(warp, turns: int) -> None:
    with kscope.region("all"):
        for turn in range(turns):
            PRE.enter()
            warp.work(100)
            with kscope.region("compute", value=turn):
                warp.work(100)
                PRE.exit()  # a span of another track may cross
                warp.work(300)
            kscope.instant("issued", turn, track="loads")
            kscope.counter("depth", turn, track="queue")


@pytest.fixture(scope="module")
def trace() -> Trace:
    with kscope.profile() as prof:
        kscope_sim.launch(overlaps, grid=2, block=64, args=(3,))
    kinds = {problem.kind for problem in prof.trace.problems}
    assert kinds <= {"absent"}, "a language that another test imported has no GPU, and nothing else"
    return prof.trace


def test_a_region_has_its_name_and_its_track(trace: Trace) -> None:
    reported = {(region.name, region.track) for region in trace.regions if region.known}
    assert reported == {
        ("all", None), ("compute", None), ("load", "loads"), ("issued", "loads"), ("depth", "queue"),
    }  # fmt: skip
    assert trace.user_tracks == ("loads", "queue")  # in order of first use
    names = trace.region_names()[trace.region]
    assert {(name, int(track)) for name, track in zip(names, trace.user_track, strict=True)} == {
        ("all", -1), ("compute", -1), ("load", 0), ("issued", 0), ("depth", 1),
    }  # fmt: skip


def test_tracks_are_ordered_by_earliest_use_on_any_lane() -> None:
    late, early = (f"{name}{TRACK}{name}s" for name in ("late", "early"))
    slabs = [
        synth.slab([synth.Rec(late, 2000, 2010), synth.Rec(early, 50_000, 50_010)], warp=0),
        synth.slab([synth.Rec(early, 1100, 1200)], warp=1),
    ]
    assert decode(synth.capture(*slabs, names=(late, early))).user_tracks == ("earlys", "lates")


def test_a_trace_is_filtered_by_track(trace: Trace) -> None:
    kept = trace.filter(track="lo*")
    assert {*kept.region_names()[kept.region]} == {"load", "issued"}
    with pytest.raises(UsageError, match="not in this trace, which has track loads, queue"):
        trace.filter(track="stores")


def test_a_timeline_has_a_row_per_lane_and_track_below_the_lane(trace: Trace, tmp_path: Path) -> None:
    drawn = timeline.timeline(trace)
    assert {track.number for track in drawn.more} == {0}  # nothing crosses within a track
    users = [(track.row, track.user) for track in drawn.more]
    assert users == [(row, user) for row in range(4) for user in ("loads", "queue")]
    names = trace.region_names()[trace.region]
    for number, track in zip(drawn.track[: len(trace)].tolist(), trace.user_track.tolist(), strict=True):
        user = "" if number < len(trace.warps) else drawn.more[number - len(trace.warps)].user
        assert user == ("" if track < 0 else trace.user_tracks[track])
    assert {*drawn.rows[drawn.track[: len(trace)][names == "load"]].tolist()} == {0, 1, 2, 3}
    trace.export(tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    threads = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert threads[1:4] == [f"SM 0 · block 0 warp 0{track}" for track in ("", " loads", " queue")]
    trace.export(tmp_path / "run.pftrace")
    assert b"block 0 warp 0 loads" in (tmp_path / "run.pftrace").read_bytes()


def test_tables_have_the_track(trace: Trace, tmp_path: Path) -> None:
    trace.export(tmp_path / "run.csv")
    with open(tmp_path / "run.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    reported = {(row["region"], row["track"]) for row in rows}
    assert reported == {("all", ""), ("compute", ""), ("load", "loads"), ("issued", "loads"), ("depth", "queue")}


def test_arrow_and_pandas_have_the_track(trace: Trace) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("pandas")
    column = trace.to_arrow().column("track").to_pylist()
    frame = trace.to_pandas()["track"]
    expected = [None if number < 0 else trace.user_tracks[number] for number in trace.user_track.tolist()]
    assert column == expected
    assert [None if missing else name for name, missing in zip(frame, frame.isna(), strict=True)] == expected


def test_a_summary_takes_the_track_as_a_key(trace: Trace) -> None:
    rows = {(row.key, row.region): row for row in trace.summary(by="track").regions}
    assert {*rows} == {(("-",), "all"), (("-",), "compute"), (("loads",), "load")}
    assert rows[("loads",), "load"].count == 12


def test_nested_regions_inherit_the_track(trace: Trace) -> None:
    plain = {row.region: row for row in trace.summary().regions}
    assert plain["load"].self_ns == pytest.approx(plain["load"].warp_time_ns)
    assert plain["all"].self_ns == pytest.approx(plain["all"].warp_time_ns - plain["compute"].warp_time_ns)
    (warps,) = trace.summary().warps
    assert warps.warps == 4  # tracks are no warps
    assert warps.idle_ns < 0.05 * warps.alive_ns


def test_the_report_draws_a_track_below_its_lane(trace: Trace) -> None:
    from kscope.analysis.summary import summarize
    from kscope.report.scene import scene

    drawn = scene(trace, summarize(trace))
    lines = {
        drawn.names[name]: line for name, line in zip(drawn.codes.name.tolist(), drawn.codes.line.tolist(), strict=True)
    }
    assert lines["all"] < lines["compute"] < min(lines["load"], lines["issued"]) < lines["depth"]


def test_one_name_on_two_tracks_is_two_regions_and_one_row() -> None:
    def kernel(warp) -> None:
        for track in ("a", "b", None):
            with kscope.region("load", track=track):
                warp.work(100)

    with kscope.profile() as prof:
        kscope_sim.launch(kernel, grid=1, block=32)
    (row,) = prof.trace.summary().regions
    assert (row.region, row.count) == ("load", 3)
    assert [row.key for row in prof.trace.summary(by="track").regions] == [("-",), ("a",), ("b",)]


def test_names_whose_hashes_collide_are_reported_with_their_tracks() -> None:
    one, other = _colliding()
    regions = tuple(RegionMeta(name, None, None) for name in (one, other))
    names = Names([ModuleMeta("sim", (KernelMeta("k", 1, 4),), regions, "cycles", "ring", "warp")])
    (problem,) = names.problems
    assert format_name(one) in problem.text
    assert TRACK not in problem.text
    assert TRACK not in names.region(layout.record_id(one, layout.Kind.SPAN)).name


def _colliding() -> tuple[str, str]:
    seen: dict[int, str] = {}
    for number in range(1 << 20):
        name = f"n{number}{TRACK}t"
        other = seen.setdefault(layout.name_hash(name), name)
        if other != name:
            return other, name
    raise AssertionError("28 bits collide after some ten thousand names")


def test_a_damaged_name_is_shown_unchanged() -> None:
    assert split("\x1f") == ("\x1f", None)
    assert split("load\x1f") == ("load\x1f", None)


@given(NAMES, st.none() | NAMES)
@settings(max_examples=100, deadline=None)
def test_names_and_tracks_round_trip(name: str, track: str | None) -> None:
    try:
        token = check_name(name, track)
    except UsageError:  # not valid Unicode, or with the character that separates a region's work
        return
    assert split(token) == (name, track)
    assert grammar.parse(grammar.Mark("enter", token).comment()) == grammar.Mark("enter", token)


@pytest.mark.parametrize("track", ["", 3, "a\x1fb", object()])
def test_a_track_is_a_constant_string(track: object) -> None:
    with pytest.raises(UsageError, match="the track must be a non-empty string known at compile time"):
        kscope.region("load", track=track)


def test_a_pftrace_has_every_span_on_its_track(trace: Trace, tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    from replay import replay

    trace.export(tmp_path / "run.pftrace")
    found = replay(tmp_path / "run.pftrace")
    assert found.in_order
    assert found.stray_ends == found.unfinished == 0
    reported = {
        (one.lane.removeprefix("block 0 warp 0"), one.name) for one in found.slices if "block 0 warp 0" in one.lane
    }
    assert reported == {("", "all"), ("", "compute"), (" loads", "load")}
    assert {track[-1].rsplit(" · ", 1)[-1].removeprefix("block 0 warp 0") for track, *_ in found.instants} >= {" loads"}
    names = trace.region_names()[trace.region]
    assert sum(one.name == "load" for one in found.slices) == int((names == "load").sum())


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.integers(0, 3), st.integers(1, 9)), max_size=12))
def test_spans_of_any_tracks_are_all_drawn_and_nest_within_theirs(steps: list[tuple[str | None, int, int]]) -> None:
    scopes = {(track, number): kscope.scope(f"s{number}", track=track) for track, number, _ in steps}

    def kernel(warp) -> None:
        for at, (track, number, length) in enumerate(steps):
            scopes[track, number].enter() if (track, number) not in opened else scopes[track, number].exit()
            opened.symmetric_difference_update({(track, number)})
            warp.work(length + at)
        for key in sorted(opened, key=str):
            scopes[key].exit()
        opened.clear()

    opened: set[tuple[str | None, int]] = set()
    with kscope.profile() as prof:
        kscope_sim.launch(kernel, grid=1, block=32)
    trace = prof.trace
    drawn = timeline.timeline(trace)
    assert len(drawn.track) == len(trace) + len(drawn.empty)
    for track in {*drawn.track[: len(trace)].tolist()}:
        mine = [(int(b), int(e)) for b, e, t in zip(drawn.begin, drawn.end, drawn.track, strict=True) if t == track]
        crossing = [(x, y) for x in mine for y in mine if x[0] < y[0] < x[1] < y[1]]
        assert crossing == []
    by_track = trace.summary(by="track")
    assert sum(row.count for row in by_track.regions) == len(trace)
