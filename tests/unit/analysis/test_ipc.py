"""Instructions per cycle: joined by warp and ordinal, in CUTracer's columns; mismatches are named."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import orjson
import pandas as pd
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st
from synth import Rec, instant

import kscope
from kscope import cli
from kscope.analysis.trust import cutracer, ipc
from kscope.analysis.trust.cutracer import Event, LogLaunch
from kscope.capture.layout import FLAG_STOP
from kscope.errors import FormatError, UsageError
from kscope.trace import Trace, decode

COUNTS = "kernel_7fa21c3_add_kernel_hist.csv"


@pytest.fixture
def data(root: Path) -> Path:
    return root / "tests" / "data" / "ipc"


def run(data: Path, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(["trust", "ipc", *(str(data / one) if "." in one else one for one in argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


MODES = {
    "merged.csv": ("--chrome-trace", "chrome.json", "--cutracer-trace", COUNTS, "--cutracer-log", "cutracer.log"),
    "chrome.csv": ("--chrome-trace", "chrome.json"),
    "hist.csv": ("--cutracer-trace", COUNTS),
    "capture.csv": ("capture.kscope", "--cutracer-trace", "kernel_abc_matmul_hist.csv"),
    "capture.json": ("capture.kscope", "--cutracer-trace", "kernel_abc_matmul_hist.csv", "--json"),
}


@pytest.mark.parametrize("golden", MODES)
def test_the_sample_data_gives_the_golden_output(golden: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(data, capsys, *MODES[golden])
    assert (code, err) == (0, "")
    assert out == (data / golden).read_text()


def test_golden_ipc_rows_equal_hand_computed_values(data: Path) -> None:
    rows = list(csv.DictReader(io.StringIO((data / "merged.csv").read_text())))
    assert len(rows) == 3 * 2 * 2  # blocks, warps, regions: no row is of another region's counts
    # block 1, warp 1 is warp 3 of the grid; its second region has (2 * 3 + 3) + (2 * 4 + 3) + (2 * 5 + 3) instructions
    [row] = [row for row in rows if row["global_warp_id"] == "3" and row["region_id"] == "1"]
    assert (row["core"], row["cta"], row["local_warp_id"], row["name"]) == ("4", "1", "1", "store_ops")
    assert (row["total_instruction_count"], row["cycles"], row["ipc"]) == ("33", "80.0", "0.4125")


def test_the_merge_is_the_one_that_pandas_makes_by_warp_and_ordinal(data: Path) -> None:
    hist = pd.read_csv(data / COUNTS).groupby(["warp_id", "region_id"])["count"].sum().reset_index()
    events = pd.read_csv(data / "chrome.csv")
    events["warp_id"] = events["cta"] * 2 + events["local_warp_id"]
    events = events.sort_values(["warp_id", "timestamp_ns"])
    events["region_id"] = events.groupby("warp_id").cumcount()
    want = events.merge(hist, on=["warp_id", "region_id"])
    got = pd.read_csv(data / "merged.csv")
    assert got["total_instruction_count"].tolist() == want["count"].tolist()
    assert got["ipc"].tolist() == pytest.approx((want["count"] / want["cycles"]).tolist())


def test_mean_and_median_are_per_region(data: Path) -> None:
    found = json.loads((data / "capture.json").read_text())
    table = pd.read_csv(data / "capture.csv").groupby("name")["ipc"]
    for row in found["regions"]:
        assert row["mean"] == pytest.approx(table.mean()[row["name"]])
        assert row["median"] == pytest.approx(table.median()[row["name"]])


def test_kscopes_own_clock_pairs_are_skipped(data: Path) -> None:
    rows = list(csv.DictReader(io.StringIO((data / "capture.csv").read_text())))
    assert {row["region_id"] for row in rows} == {"1", "2"}


def refused(data: Path, capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    code, out, err = run(data, capsys, *argv)
    assert (code, out) == (2, "")
    return err


def test_invalid_input_combinations_are_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing to read" in refused(data, capsys)
    assert "a capture alone has no instructions" in refused(data, capsys, "capture.kscope")
    assert "give one of them" in refused(data, capsys, "capture.kscope", "--chrome-trace", "chrome.json")
    assert "expected --cutracer-log" in refused(
        data, capsys, "--chrome-trace", "chrome.json", "--cutracer-trace", COUNTS
    )
    assert "several kernels" not in refused(data, capsys, *MODES["merged.csv"], "--kernel-hash", "0xdead")
    assert "expected hexadecimal" in refused(data, capsys, *MODES["merged.csv"], "--kernel-hash", "xyz")
    assert "expected two numbers" in refused(data, capsys, *MODES["capture.csv"], "--anchors", "1")
    wrong = refused(data, capsys, *MODES["capture.csv"], "--cutracer-log", "cutracer.log", "--kernel-hash", "11")
    assert "they are not the same launch" in wrong


def test_no_input_is_written_over(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for mode in MODES.values():
        typed = [str(shutil.copy(data / one, tmp_path)) if "." in one else one for one in mode]
        for place in [one for one in typed if "." in one]:
            before = Path(place).read_bytes()
            Path(tmp_path / "link").symlink_to(place)
            for output in (place, str(tmp_path / "link")):
                assert cli.main(["trust", "ipc", *typed, "-o", output]) == 2
                assert f"-o {output}: the same file as {place}, which this command reads" in capsys.readouterr().err
            Path(tmp_path / "link").unlink()
            assert Path(place).read_bytes() == before


def test_an_output_is_written_whole_or_not_at_all(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "x.csv"
    output.write_text("what was there")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "replace", full)
        assert cli.main(["trust", "ipc", "--cutracer-trace", str(data / COUNTS), "-o", str(output)]) == 2
        assert "No space" in capsys.readouterr().err
    assert output.read_text() == "what was there" and list(tmp_path.iterdir()) == [output]
    assert cli.main(["trust", "ipc", "--cutracer-trace", str(data / COUNTS), "-o", str(output)]) == 0
    assert output.read_text() == (data / "hist.csv").read_text()


def test_a_pipe_is_written_to_and_stays_one(data: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert cli.main(["trust", "ipc", "--cutracer-trace", str(data / COUNTS), "-o", str(tmp_path / "pipe")]) == 0
    with os.fdopen(reading) as message:
        assert message.read() == (data / "hist.csv").read_text()
    assert (tmp_path / "pipe").is_fifo()


def test_a_hash_that_begins_with_zero_is_found(data: Path) -> None:
    launches = cutracer.read_log(data / "cutracer.log")
    assert [one.hash for one in launches] == [0x11, 0x7FA21C3, 0x0FA21C3, None]
    assert ipc.select_launch(launches, 0xFA21C3).block == (128, 1, 1)
    assert launches[2].name == "add_kernel"
    with pytest.raises(UsageError, match="several kernels or block sizes"):
        ipc.select_launch(launches, None)
    with pytest.raises(UsageError, match=r"no launch with kernel hash 0xdead in the log, which has \(no hash\), 0x11"):
        ipc.select_launch(launches, 0xDEAD)


def capture(*warps: list[Rec], **more: int) -> Trace:
    return decode(
        synth.capture(*(synth.slab(records, warp=n, **more) for n, records in enumerate(warps)), names=("a", "b"))
    )


A, B = Rec("a", 2000, 2100), Rec("b", 2200, 2250)


def counts(*warps: int) -> dict[tuple[int, int], int]:
    """Counts 100, 200 ... of this many regions of each warp."""
    return {(warp, region): 100 * (region + 1) for warp, total in enumerate(warps) for region in range(total)}


def test_every_warp_that_fits_has_its_ipc() -> None:
    found = ipc.join(ipc.of_trace(capture([A, B], [A, B])), counts(4, 4))
    assert found.mismatches == ()
    assert [(row.global_warp_id, row.region_id, row.name, row.ipc) for row in found.rows] == [
        (0, 1, "a", 2.0), (0, 2, "b", 6.0), (1, 1, "a", 2.0), (1, 2, "b", 6.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("warps", "have", "message"),
    [
        ([[A, B], [A]], (4, 4), "number of regions differs"),
        ([[A, B]], (4, 4), "counts, and no record"),
        ([[A, B], [A, B]], (4,), "no counts in the histogram"),
        ([[Rec("b", 2020, 2050), A]], (4,), "regions that nest or cross"),
        ([[A, instant("b", 2300)]], (4,), "instants or counters between regions"),
        ([[A, Rec("b", A.end, A.end + 50)]], (4,), "begin with the clock read that ends another"),
    ],
)
def test_mismatched_counts_are_named(warps: list[list[Rec]], have: tuple[int, ...], message: str) -> None:
    found = ipc.join(ipc.of_trace(capture(*warps)), counts(*have))
    assert any(message in one for one in found.mismatches), found.mismatches
    if message == "number of regions differs":
        assert [row.ipc is None for row in found.rows] == [row.global_warp_id == 1 for row in found.rows]


def test_partially_counted_anchors_are_explained() -> None:
    found = ipc.join(ipc.of_trace(capture([A, B], [A, B])), counts(3, 3))
    assert "one clock read of each anchor is an S2UR" in found.mismatches[0]
    assert {row.ipc for row in found.rows} == {None}


def test_overwritten_records_keep_the_ordinals_right_and_are_named() -> None:
    spans = [Rec("a", 2000 + 100 * n, 2010 + 100 * n) for n in range(11)]
    found = ipc.join(ipc.of_trace(capture(spans)), counts(13))
    assert [row.region_id for row in found.rows] == list(range(4, 12))
    assert found.mismatches == ("3 records overwritten: their counts have no region",)


def test_an_overfull_slab_excludes_only_its_own_warp() -> None:
    spans = [Rec("a", 2000 + 100 * n, 2010 + 100 * n) for n in range(11)]
    full, whole = synth.slab(spans, flags=FLAG_STOP), synth.slab([A, B], warp=1, flags=FLAG_STOP)
    trace = decode(synth.capture(full, whole, names=("a", "b")))
    found = ipc.join(ipc.of_trace(trace), {**counts(13), **{(1, n): 100 * (n + 1) for n in range(4)}})
    assert [(row.global_warp_id, row.region_id) for row in found.rows] == [(1, 1), (1, 2)]
    assert any("after their warp's buffer was full" in one for one in found.mismatches)


def test_several_launches_or_lanes_are_refused() -> None:
    two = decode(synth.capture(synth.slab([A]), synth.slab([A], grid_id=2, start=200_000, end=300_000)))
    with pytest.raises(UsageError, match="2 launches: a histogram covers one launch"):
        ipc.of_trace(two)
    lanes = decode(synth.capture(synth.slab([A]), synth.slab([A], lane=5)))
    with pytest.raises(UsageError, match="every lane recorded"):
        ipc.of_trace(lanes)


def test_count_mismatches_are_reported_with_exit_code_1(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = tmp_path / COUNTS
    short.write_text("warp_id,region_id,count\n0,0,5\n")
    code, out, err = run(
        data, capsys, *MODES["merged.csv"][:2], "--cutracer-trace", str(short), *MODES["merged.csv"][4:]
    )
    assert code == ipc_mismatch()
    assert "no counts in the histogram" in err
    assert "load_ops" in out


def ipc_mismatch() -> int:
    from kscope.cli.trust.ipc import MISMATCH

    return MISMATCH


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "no column warp_id, region_id, count"),
        ("warp_id,region_id,count\n0,x,3\n", "line 2: region_id is 'x'"),
        ("warp_id,region_id,count\n0,0\n", "line 2: count is ''"),
        ("warp_id,region_id,count\n0,-1,3\n", "region_id is '-1'"),
        ("", "no column"),
    ],
)
def test_an_invalid_histogram_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "h.csv").write_text(text)
    with pytest.raises(FormatError, match=message):
        cutracer.read_histogram(tmp_path / "h.csv")


@pytest.mark.parametrize("text", ["", "{", "3", '{"traceEvents": 3}', '{"a": []}'])
def test_an_invalid_chrome_trace_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(FormatError):
        cutracer.read_chrome(tmp_path / "c.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8) | st.integers(-(2**40), 2**40),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["pid", "tid", "ts", "dur", "ph", "name"]), inner)
    ),
    max_leaves=12,
)


@given(st.lists(json_values, max_size=6))
def test_arbitrary_chrome_events_are_read_or_skipped(
    tmp_path_factory: pytest.TempPathFactory, events: list[object]
) -> None:
    path = tmp_path_factory.mktemp("chrome") / "c.json"
    path.write_bytes(orjson.dumps(events))
    assert isinstance(cutracer.read_chrome(path), tuple)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_parsed_or_refused(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    path = tmp_path_factory.mktemp("noise") / "x"
    path.write_bytes(b"warp_id,region_id,count\n" + noise)
    assert isinstance(cutracer.read_log(path), tuple)
    with suppress(FormatError):
        cutracer.read_histogram(path)


def test_cutracer_files_round_trip(tmp_path: Path) -> None:
    trace = capture([A, B], [A, B])
    (tmp_path / "t.json").write_bytes(cutracer.write_chrome(trace))
    events = cutracer.read_chrome(tmp_path / "t.json")
    assert [(e.core, e.cta, e.warp, e.name, e.category) for e in events[:2]] == [
        (0, 0, 0, "a", "matmul"),
        (0, 0, 0, "b", "matmul"),
    ]
    assert [e.cycles for e in events] == pytest.approx([100, 50, 100, 50])
    written = cutracer.write_histogram({(0, 1, "LDG.E.64"): 4, (0, 1, 'odd "name"'): 2, (3, 0, "x"): 1})
    (tmp_path / "kernel_12ab_x_hist.csv").write_text(written)
    assert cutracer.read_histogram(tmp_path / "kernel_12ab_x_hist.csv") == {(0, 1): 6, (3, 0): 1}
    assert cutracer.histogram_hash(tmp_path / "kernel_12ab_x_hist.csv") == 0x12AB
    (tmp_path / "log").write_text(cutracer.write_log([(trace.launches[0], (128, 1, 1))]))
    assert cutracer.read_log(tmp_path / "log") == (LogLaunch(synth.KERNEL, (1, 1, 1), (128, 1, 1), "matmul"),)


def test_launches_carry_their_kernels_hash(root: Path) -> None:
    capture = kscope.load_capture(root / "tests" / "golden" / "graph.kscope")
    ids = {kernel.id for module in capture.modules for kernel in module.kernels if kernel.name == "four"}
    found = {launch.hash for launch in kscope.decode(capture).launches}
    assert len(found) == 1
    assert found <= {f"0x{number:x}" for number in ids}


def test_overlapping_proton_regions_are_not_joined() -> None:
    launch = LogLaunch(1, (1, 1, 1), (32, 1, 1))
    nested = [Event(0, 0, 0, "a", "k", 1000.0, 0.0), Event(0, 0, 0, "b", "k", 10.0, 5.0)]
    found = ipc.join(ipc.of_events(nested, launch), counts(2))
    assert found.rows == ()
    assert "overlap" in found.mismatches[0]
