"""Facts about a recording in every output: GPU, versions, command, subset, clock."""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synth

import kscope
from kscope import cli
from kscope.analysis import occupancy
from kscope.analysis.trust import cutracer
from kscope.capture.capture import Capture, load_capture
from kscope.export import row_notes
from kscope.readers import proton
from kscope.trace import Trace, decode
from kscope.tracedata.info import info

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
DOCS = GOLDEN.parents[1] / "docs"
SUBSET, WHOLE = GOLDEN / "attention.kscope", GOLDEN / "block.kscope"
PART = "4 of 512 blocks recorded (subset)"


def trace(path: Path = SUBSET) -> Trace:
    return decode(load_capture(path))


def printed(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    assert cli.main([str(word) for word in argv]) == 0
    return capsys.readouterr().out


def test_the_facts_are_those_of_the_capture() -> None:
    found = info(trace())
    assert [one.name for one in found.gpus] == ["NVIDIA H200"]
    assert found.versions["triton"] == "3.6.0" and found.date == "2026-11-21T07:44:30+00:00"
    assert (found.strategy, found.subset, found.clock) == ("elected", {"block": "0:512:128"}, "gpu")
    assert (found.blocks, found.grid_blocks, found.partial) == (4, 512, True)
    assert info(trace().filter(warp=0)) == found
    assert not info(trace(WHOLE)).partial


def test_the_strategies_are_those_of_the_kernels_that_recorded() -> None:
    """The process had loaded kernels with other strategies before."""
    found = {name: info(trace(GOLDEN / f"{name}.kscope")).strategy for name in ("block", "lanes", "ring")}
    assert found == {"block": "lane0-warp0", "lanes": "all", "ring": "elected"}


def placed(*placements: str) -> Capture:
    """A capture of two kernels with these placements."""
    named = list(enumerate(zip(("matmul", "softmax"), placements, strict=True), 1))
    slabs = [synth.slab(synth.EVERY_KIND, kernel=number, grid_id=number) for number, _ in named]
    modules = tuple(
        replace(synth.module(synth.ITS_NAMES, number, name), placement=placement) for number, (name, placement) in named
    )
    return replace(synth.capture(*slabs), modules=modules)


@pytest.mark.parametrize(
    ("placements", "text"),
    [
        (("schedule", "schedule"), "schedule"),
        (("schedule", "fence"), "schedule (matmul), fence (softmax)"),
        (("fence", "fence"), ""),
    ],
)
def test_info_names_the_placement_of_each_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], placements: tuple[str, str], text: str
) -> None:
    path = tmp_path / "run.kscope"
    placed(*placements).save(path)
    assert info(trace(path)).placement == dict(zip(("matmul", "softmax"), placements, strict=True))
    rows = dict(line.split("  ", 1) for line in printed(capsys, "info", path).splitlines())
    assert rows.get("placement", "").strip() == text
    assert (f"placement {text}" in printed(capsys, "summary", path)) == bool(text)
    assert json.loads(printed(capsys, "info", path, "--json"))["recorded"]["placement"]["matmul"] == placements[0]


def test_info_prints_the_facts_and_takes_json(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "info", SUBSET)
    for fact in ("NVIDIA H200", "triton 3.6.0", "2026-11-21", "tests/golden/record.py", "0:512:128", PART, "GPU clock"):
        assert fact in text
    found = json.loads(printed(capsys, "info", SUBSET, "--json"))["recorded"]
    assert (found["blocks"], found["grid_blocks"], found["partial"]) == (4, 512, True)
    assert found["gpus"][0]["name"] == "NVIDIA H200"


def test_the_process_of_a_job_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = {"rank": 1, "world": 4, "pid": 77, "hostname": "node3"}
    path = tmp_path / "run.kscope"
    replace(load_capture(WHOLE), host=host).save(path)
    assert "process      rank 1 of 4, process 77 on node3\n" in printed(capsys, "info", path)
    assert json.loads(printed(capsys, "info", path, "--json"))["recorded"]["process"].startswith("rank 1 of 4")
    assert info(replace(trace(), recorded=replace(trace().recorded, host={**host, "world": 1}))).process == (
        "process 77 on node3"
    )
    for damaged in ({}, {**host, "pid": "x"}, {**host, "hostname": 5}):
        assert info(replace(trace(), recorded=replace(trace().recorded, host=damaged))).process == ""


def test_every_output_states_that_only_some_blocks_recorded(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    for command in ("summary", "occupancy"):
        assert PART in " ".join(printed(capsys, command, SUBSET).split())
        about = json.loads(printed(capsys, command, SUBSET, "--json"))["recorded"]
        assert (about["blocks"], about["grid_blocks"], about["partial"]) == (4, 512, True)
    assert PART in " ".join(printed(capsys, "summary", SUBSET, "--markdown").split())
    for name in ("x.pftrace", "x.json", "x.parquet", "x.html"):
        trace().export(tmp_path / name)
    assert PART.encode() in (tmp_path / "x.pftrace").read_bytes()
    assert PART in (tmp_path / "x.html").read_text()
    assert json.loads((tmp_path / "x.json").read_text())["otherData"]["recorded"]["partial"] is True
    stored = json.loads(pyarrow.read_schema(tmp_path / "x.parquet").metadata[b"kscope"])
    assert stored["recorded"]["gpus"][0]["name"] == "NVIDIA H200"


def simulated() -> Trace:
    kscope_sim = pytest.importorskip("kscope_sim")

    def kernel(warp: Any) -> None:
        with kscope.region("load"):
            warp.work(10)
        with kscope.region("wait"):
            warp.work(10)

    with kscope.profile() as prof:
        kscope_sim.launch(kernel)
    return prof.trace


def interpreted() -> Trace:
    """A trace like that of a kernel that ran in an interpreter on the CPU."""
    found = simulated()
    return replace(found, recorded=replace(found.recorded, clock="host"))


def foreign() -> Trace:
    found = simulated()
    return replace(found, recorded=replace(found.recorded, clock="foreign", source="Proton", gpus=()))


CAVEATS = [
    (trace, PART, ("load_k", "qk")),
    (simulated, "simulated clock", ("load", "wait")),
    (interpreted, "host clock", ("load", "wait")),
    (foreign, "another profiler's clock", ("load", "wait")),
]


@pytest.mark.parametrize(("make", "caveat", "edge"), CAVEATS, ids=["sampled", "simulated", "host", "foreign"])
def test_every_result_states_its_caveat_as_text(make: Callable[[], Trace], caveat: str, edge: tuple[str, str]) -> None:
    found = make()
    results = [found.summary(), found.gaps(), *found.overlap(), found.path(edge), found.occupancy()]
    for one in (*results, found.compare(found), found.summary().markdown(), found._repr_html_(), found):
        text = " ".join(html.unescape(f"{one!r}\n{one}").split())
        assert caveat in text or (caveat.startswith("another") and "data of Proton" in text), type(one)
    assert caveat not in str(trace(WHOLE).gaps()) + repr(trace(WHOLE))


@pytest.mark.parametrize(("make", "caveat", "edge"), CAVEATS, ids=["sampled", "simulated", "host", "foreign"])
def test_every_file_states_its_caveat(
    make: Callable[[], Trace], caveat: str, edge: tuple[str, str], tmp_path: Path
) -> None:
    """The two that have no place for it are tables of bare rows: `kscope export` prints it beside them."""
    parquet, feather = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow.feather")
    found = make()
    expected = info(found).to_dict()
    for name in ("pftrace", "json", "html", "parquet", "feather", "hatchet", "speedscope.json"):
        found.export(tmp_path / f"x.{name}")
    line = info(found).line
    assert line.encode() in (tmp_path / "x.pftrace").read_bytes()
    assert json.loads((tmp_path / "x.json").read_text())["otherData"]["recorded"] == json.loads(json.dumps(expected))
    assert html.escape(line) in (tmp_path / "x.html").read_text() or line in (tmp_path / "x.html").read_text()
    schemas = parquet.read_schema(tmp_path / "x.parquet"), feather.read_table(tmp_path / "x.feather").schema
    for schema in schemas:
        assert json.loads(schema.metadata[b"kscope"])["recorded"] == json.loads(json.dumps(expected))
    assert caveat in (tmp_path / "x.hatchet").read_text()
    assert json.loads((tmp_path / "x.speedscope.json").read_text())["name"].endswith(line)
    rows = csv.DictReader(io.StringIO(found.summary().csv()))
    stated = {(row["clock"], int(row["blocks"]), int(row["grid_blocks"])) for row in rows}
    assert stated == {(expected["clock"], expected["blocks"], expected["grid_blocks"])}


def test_commands_state_the_caveat(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = printed(capsys, "assert", SUBSET, "dropped == 0")
    assert text.splitlines()[0] == PART
    assert printed(capsys, "assert", "-q", SUBSET, "dropped == 0") == ""
    assert PART in printed(capsys, "trust", "overhead", SUBSET, "--cost", "28,2")
    for name in ("x.csv", "x.folded"):
        assert printed(capsys, "export", SUBSET, "-o", tmp_path / name).endswith(f"; {PART}\n")


def test_a_comparison_states_both_recordings_and_that_devices_differ(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "compare", SUBSET, DOCS / "tutorial" / "slow.kscope")
    assert text.startswith("a: NVIDIA H200; kscope") and "\nb: NVIDIA H100" in text
    flat = " ".join(text.split())
    assert "! times of different devices: NVIDIA H200 in a and NVIDIA H100 80GB HBM3 in b" in flat
    assert "different devices" not in printed(capsys, "compare", SUBSET, SUBSET)


def test_a_summary_as_csv_shows_problems_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["summary", "--csv", str(GOLDEN / "ring.kscope")]) == 0
    shown = capsys.readouterr()
    assert "400 records overwritten" in shown.err and "400 records overwritten" not in shown.out


def test_lanes_are_no_warps(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    lanes = trace(GOLDEN / "lanes.kscope")
    assert (info(lanes).warps, info(lanes).lanes) == (12, 384)
    assert (info(trace()).warps, info(trace()).lanes) == (32, 0)
    assert "384 lanes" in repr(lanes) and "32 warps" in repr(trace())
    assert lanes.warps.labels(np.arange(2)).strings() == ["block 0 warp 0 lane 0", "block 0 warp 0 lane 1"]
    text = printed(capsys, "occupancy", GOLDEN / "lanes.kscope")
    assert "lanes alive over time, up to 64.0" in text and "warps" not in text
    rows = dict(line.split(maxsplit=1) for line in printed(capsys, "info", GOLDEN / "lanes.kscope").splitlines())
    assert (rows["warps"], rows["lanes"]) == ("12", "384")


def test_waves_and_the_tail_of_a_sample_are_not_given(capsys: pytest.CaptureFixture[str]) -> None:
    [launch] = occupancy.waves(trace())
    assert (launch.blocks, launch.grid_blocks, launch.waves) == (4, 512, None)
    assert np.isnan([launch.ramp_ns, launch.tail_ns, launch.tail_idle]).all()
    out = printed(capsys, "occupancy", SUBSET)
    assert "42.7%" not in out and "≥ 172.8 us" in out and "4 of 512" in out
    [whole] = occupancy.waves(trace(WHOLE))
    assert whole.waves is not None and whole.tail_idle == whole.tail_idle
    [some] = occupancy.waves(trace(WHOLE).filter(block=0))
    assert some.waves is None


def test_a_summary_of_a_sample_gives_the_launch_time_as_a_lower_bound() -> None:
    text = " ".join(str(trace().summary()).split())
    assert f"1 launch of at least 172.8 us, {PART}" in text
    assert "at least" not in str(trace(WHOLE).summary()).partition("globaltimer")[0].replace("at most", "")


def test_a_filter_does_not_turn_what_it_removed_into_time_in_no_region() -> None:
    whole, kept = trace().summary(), trace().filter(region="load_k").summary()
    assert kept.warps[0].idle_ns == whole.warps[0].idle_ns
    for mine in kept.regions:
        [same] = [row for row in whole.regions if row.region == mine.region]
        assert replace(mine, wall_ns=same.wall_ns) == same and mine.wall_ns == pytest.approx(same.wall_ns)
    nested = decode(synth.capture(synth.slab(synth.EVERY_KIND), names=synth.ITS_NAMES))
    [tile] = nested.filter(region="tile").summary().regions
    assert tile == next(row for row in nested.summary().regions if row.region == "tile")
    assert tile.self_ns < tile.warp_time_ns


def test_wall_time_counts_overlapping_warps_once() -> None:
    spans = [synth.Rec("load", 2000, 2990), synth.Rec("load", 3980, 4970)]
    both = [synth.slab(spans, block=(block, 0, 0), grid=(2, 1, 1), sm=block) for block in range(2)]
    [row] = decode(synth.capture(*both)).summary().regions
    assert row.warp_time_ns == pytest.approx(2000, rel=1e-3) and row.wall_ns == pytest.approx(1000, rel=1e-2)
    one = trace().filter(block="0,0", warp=0).summary()
    for alone in one.regions:
        assert alone.wall_ns == pytest.approx(alone.warp_time_ns, rel=1e-2)


def test_wall_time_of_groups_is_that_of_their_own_warps() -> None:
    data = trace()
    for row in data.summary("sm").regions:
        mine = data.filter(sm=int(row.key[0]), region=row.region)
        order = np.argsort(mine.start_ns)
        start, end = mine.start_ns[order], (mine.start_ns + mine.dur_ns)[order]
        reach = np.maximum.accumulate(end)
        begin = np.maximum(start, np.concatenate([[start[0]], reach[:-1]]))
        assert row.wall_ns == pytest.approx(np.maximum(reach - begin, 0).sum(), rel=1e-3, abs=1)


def test_rows_are_warps_unless_all_lanes_recorded() -> None:
    assert "5,184 records of 32 warps in 1 launch" in str(trace().summary())
    assert "1,536 records of 384 lanes in 1 launch" in str(trace(GOLDEN / "lanes.kscope").summary())


def test_a_simulated_clock_is_called_one() -> None:
    kscope_sim = pytest.importorskip("kscope_sim")

    def kernel(warp: Any) -> None:
        with kscope.region("load"):
            pass

    with kscope.profile() as prof:
        kscope_sim.launch(kernel)
    assert info(prof.trace).clock == "simulated"
    text = str(prof.trace.summary())
    assert "simulated clock" in text and "aligned within" not in text


def test_another_profilers_data_makes_no_claim_about_its_clock(tmp_path: Path) -> None:
    events = [
        {
            "ph": "X", "name": "load", "cat": "kernel", "pid": "kernel Core0 CTA0", "tid": "warp 0 (line 0)",
            "ts": 1.0, "dur": 2.0, "args": {},
        }
    ]  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": events}))
    found = proton(tmp_path / "a.json")
    assert len(found) == 1 and info(found).source == "Proton"
    text = str(found.summary())
    assert "another profiler's clock" in text
    for claim in ("ticks every", "aligned within", "exact;", "in SM cycles, exact"):
        assert claim not in text


def test_every_table_has_the_source_line_of_each_region(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    data = trace()
    wheres = {one.name: one.where for one in data.regions if one.where}
    assert wheres
    for suffix in ("csv", "parquet", "hatchet"):
        data.export(tmp_path / f"x.{suffix}")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "x.csv").read_text())))
    assert all(row["source"] == wheres[row["region"]] for row in rows)
    table = pyarrow.read_table(tmp_path / "x.parquet").to_pydict()
    assert all(source == wheres[name] for name, source in zip(table["region"], table["source"], strict=True))
    root = json.loads((tmp_path / "x.hatchet").read_text())[0]
    frames = [one["frame"] for kernel in root["children"] for one in kernel["children"]]
    assert all(f"{frame['file']}:{frame['line']}" == wheres[frame["name"]] for frame in frames) and frames
    summary = json.loads(printed(capsys, "summary", SUBSET, "--json"))
    assert all(row["where"] == wheres[row["region"]] for row in summary["regions"])


def test_a_trace_written_for_cutracer_has_true_shares_when_it_is_read_back(tmp_path: Path) -> None:
    for name in ("attention", "graph", "matmul"):
        data = trace(GOLDEN / f"{name}.kscope")
        (tmp_path / "a.json").write_bytes(cutracer.write_chrome(data))
        read = proton(tmp_path / "a.json")
        assert len(read) == data.is_span.sum() and len(read.launches) == len(data.launches)
        assert sorted(read.dur_cycles.tolist()) == sorted(data.dur_cycles[data.is_span].tolist())
        for row in range(len(read.warps)):
            mine = read.track == row
            outermost = mine & (read.depth == 0)
            life = int(read.warps.last_tick[row] - read.warps.first_tick[row])
            assert int(read.dur_cycles[outermost].sum()) <= life, (name, read.warps.label(row))


def test_the_least_epilogue_is_never_above_the_most() -> None:
    for path in sorted(GOLDEN.glob("*.kscope")):
        data = trace(path)
        found = {one.name: one for one in row_notes.arguments(data)}
        least, most = found["epilogue_least"], found["epilogue_most"]
        known = least.known & most.known
        assert known.any() == (~data.warps.timer).any(), path
        assert (least.values[known] <= most.values[known]).all(), path


@pytest.mark.parametrize(
    "argv", [("gaps",), ("overlap",), ("path", "--edge", "qk:softmax", "--block", "0,8"), ("compare", SUBSET)]
)
def test_every_analysis_states_that_only_some_blocks_recorded(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert PART in " ".join(printed(capsys, argv[0], SUBSET, *argv[1:]).split())


def test_conditions_on_the_time_of_a_launch_with_some_blocks_do_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    for condition in ("time < 1s", "attention.time < 1s", "attention.mean_time < 1s"):
        assert cli.main(["assert", str(SUBSET), condition]) == 1
        assert "not known" in capsys.readouterr().out
    assert cli.main(["assert", str(WHOLE), "time < 1s"]) == 0


def test_a_device_without_records_does_not_decide_what_the_clock_is() -> None:
    gpu = synth.device(synth.bulk(4, 2), tick_ns=32)
    model = replace(synth.device(np.zeros((0, 16), np.uint32), tick_ns=1), ordinal=1, name="simulated")
    modules = (synth.module(("load",)),)
    assert decode(Capture(synth.EPOCH, (gpu, model), modules)).recorded.clock == "gpu"
    assert decode(Capture(synth.EPOCH, (model,), modules)).recorded.clock == "simulated"
