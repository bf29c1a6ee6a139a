"""Samples as tables: Parquet, CSV, pandas, JSON of the summary, and the methods of a trace."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import reports

import kscope
from kscope.analysis.samples.stalls import stalls
from kscope.cli import main
from kscope.errors import UsageError
from kscope.export import sample_rows
from kscope.report.tables import tables
from kscope.trace import Trace, decode

from . import programs


@pytest.fixture(scope="module")
def trace() -> Trace:
    return decode(programs.recorded())


@pytest.fixture
def path(tmp_path: Path) -> str:
    programs.recorded().save(tmp_path / "run.kscope")
    return str(tmp_path / "run.kscope")


def test_a_table_has_each_instruction_and_reason(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stalls", path, "-o", str(tmp_path / "x.csv")]) == 0
    samples = kscope.load_capture(path).samples
    assert samples is not None and f"{len(samples.rows)} rows" in capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "x.csv").read_text().splitlines()))
    assert sum(int(row["samples"]) for row in rows) == len(samples)
    inner = next(row for row in rows if row["region"] == "inner" and row["instruction"] == "work")
    assert (inner["kernel"], inner["regions"], inner["reason"]) == ("three", "math/inner", "wait")
    assert (inner["file"], int(inner["line"])) == (programs.FILE, programs.line("warp.work(93"))
    assert {row["instruction"] for row in rows if not row["region"]} == {"sync", "clock"}


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
def test_arrow_formats_have_the_rows_of_csv_also_beside_exported_records(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    arrow = pytest.importorskip("pyarrow")
    tables = {".parquet": pytest.importorskip("pyarrow.parquet").read_table}
    read = tables.get(suffix, lambda file: arrow.ipc.open_file(file).read_all())
    assert main(["stalls", path, "-o", str(tmp_path / f"x{suffix}")]) == 0
    samples = kscope.load_capture(path).samples
    assert samples is not None
    assert read(tmp_path / f"x{suffix}").to_pydict() == sample_rows.columns(samples)
    capsys.readouterr()
    assert main(["export", path, "-o", str(tmp_path / f"run{suffix}")]) == 0
    beside = tmp_path / f"run.stalls{suffix}"
    shown = capsys.readouterr().out.splitlines()
    assert shown[1] == f"{beside}: {len(samples):,} samples of stalls, {beside.stat().st_size:,} bytes"
    assert read(beside).to_pydict() == sample_rows.columns(samples)


def test_samples_are_written_beside_tables_only_and_only_if_there_are_any(path: str, tmp_path: Path) -> None:
    trace = kscope.load(path)
    for name in ("a.csv", "b.folded", "c.json"):
        trace.export(tmp_path / name)
    replace(trace, samples=None).export(tmp_path / "d.csv")
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "a.csv", "a.stalls.csv", "b.folded", "c.json", "d.csv", "run.kscope"
    ]  # fmt: skip


def test_info_says_how_many_samples_there_are_and_at_which_period(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = kscope.load_capture(path).samples
    assert samples is not None and main(["info", path]) == 0
    assert f"{len(samples):,} samples, one per SM sub-partition and 64 cycles" in capsys.readouterr().out
    assert main(["info", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["recorded"]
    assert (found["stall_samples"], found["stall_period"]) == (len(samples), 64)


def test_other_suffixes_and_the_capture_itself_are_refused(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stalls", path, "-o", str(tmp_path / "x.txt")]) == 2
    assert "expected a suffix of .parquet, .arrow, .feather, .csv" in capsys.readouterr().err
    assert main(["stalls", path, "-o", path]) == 2


def test_the_summary_shows_stalls_if_requested(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", path]) == 0
    assert "long_scoreboard" not in capsys.readouterr().out
    assert main(["summary", path, "--stalls"]) == 0
    assert "long_scoreboard 100%" in capsys.readouterr().out
    assert main(["summary", path, "--stalls", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in found["stalls"]} == {"load", "math", "inner", "(no region)"}


def test_a_trace_has_its_stalls_and_crosscheck(trace: Trace) -> None:
    found = trace.stalls()
    assert {row.name: row.executions for row in found.rows} == {
        "load": 320,
        "math": 320,
        "inner": 320,
        "(no region)": 0,
    }
    assert str(found).startswith(f"{found.total:,} samples, one per SM sub-partition and 64 cycles")
    assert trace.crosscheck().agrees and "agrees" in str(trace.crosscheck())
    with pytest.raises(UsageError, match="expected one of region, line, instruction, kernel"):
        trace.stalls("warp")


def test_a_row_with_the_name_of_a_region_has_no_executions(trace: Trace) -> None:
    assert trace.samples is not None
    [function] = trace.samples.functions
    assert function.kernel is not None
    for by in ("line", "instruction", "kernel"):
        names = {row.name for row in trace.stalls(by).rows}
        rows = stalls(trace.samples, by, {(function.kernel, name): 7 for name in names}).rows
        assert {row.executions for row in rows} == {0}


def test_stalls_as_a_frame(trace: Trace) -> None:
    pytest.importorskip("pandas")
    frame = trace.stalls().to_pandas().set_index("name")
    assert 0 < frame.loc["load", "long_scoreboard"] <= frame.loc["load", "samples"]
    assert frame.loc["math", "long_scoreboard"] == 0


def test_the_page_has_a_tab_of_stalls(trace: Trace) -> None:
    found = {one.name: one for one in tables(trace)}["stalls"]
    load = next(row for row in found.rows if row[0] == "load")
    assert load[1] == "long_scoreboard 100%" and "64 cycles" in found.note
    assert "stalls" not in {one.name for one in tables(decode(replace(programs.recorded(), samples=None)))}


def test_the_page_has_a_tab_of_source_lines(trace: Trace) -> None:
    found = {one.name: one for one in tables(trace)}["source"]
    assert found.head == (
        "line",
        "share",
        "source",
        "waits for",
        "samples",
        "executed",
        "registers",
        "instructions",
    )
    rows = {row[2].strip(): row for row in found.rows}
    number, share, _, waits, count, *_ = next(row for text, row in rows.items() if text.startswith("warp.work(93"))
    assert int(number) == programs.line("warp.work(93") and waits.startswith("wait") and int(count) > 0
    assert share.endswith("%")
    assert list(found.rows) == sorted(found.rows, key=lambda row: int(row[0])), "lines in their order"


def test_the_page_s_table_has_a_bar_of_reasons_for_each_region(trace: Trace) -> None:
    waits = {row["region"]: row["waits"] for row in reports.written(trace).about["table"]}
    [issued, waiting] = waits["load"]
    assert (issued[0], waiting[0]) == ("selected", "long_scoreboard")
    assert issued[1] + waiting[1] == pytest.approx(1) and waiting[1] > 0.9
    assert len({color for row in waits.values() for _, _, color in row}) == len(
        {reason for row in waits.values() for reason, _, _ in row}
    )
    without = decode(replace(programs.recorded(), samples=None))
    assert {row["waits"] for row in reports.written(without).about["table"]} == {None}


def test_launches_of_a_timeline_have_their_kernel_s_samples(trace: Trace, tmp_path: Path) -> None:
    trace.export(tmp_path / "x.json")
    events = json.loads((tmp_path / "x.json").read_text())["traceEvents"]
    [launch] = [one for one in events if one.get("cat") == "launch"]
    assert launch["args"]["samples of all launches"] == len(trace.samples or ())
    assert launch["args"]["waits in load"].endswith("; long_scoreboard 100%")
    assert " of samples, " in launch["args"]["waits in (no region)"]
    trace.export(tmp_path / "x.pftrace")
    assert b"waits in load" in (tmp_path / "x.pftrace").read_bytes()


def test_a_trace_without_samples_says_how_to_record_them() -> None:
    with kscope.profile(enabled=False) as prof:
        pass
    for method in (prof.trace.stalls, prof.trace.crosscheck):
        with pytest.raises(UsageError, match="stalls=True"):
            method()
