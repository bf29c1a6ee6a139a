"""`kscope export`: which records, which options, and messages."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest
import synth
from replay import replay
from synth import Rec

from kscope import cli
from kscope.capture.layout import Kind
from kscope.cli import export
from kscope.export import suffixes

NAMES = (("load", "u32"), ("dot", "u32"), "tile")


@pytest.fixture
def capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    records = [
        Rec("load", 2000, 2100, Kind.SPAN_VALUE, 3),
        Rec("dot", 2200, 2300, Kind.SPAN_VALUE, 3),
        Rec("tile", 1990, 2400),
    ]
    slabs = [
        synth.slab(records, sm=sm, block=(sm, 0, 0), grid=(4, 1, 1), warp=warp) for sm in range(4) for warp in (0, 1)
    ]
    synth.capture(*slabs, names=NAMES, lost=2).save(tmp_path / "some.kscope")
    return "some.kscope"


@pytest.mark.parametrize("suffix", suffixes())
def test_every_format_of_the_help_is_written(suffix: str, capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    if suffix in (".parquet", ".arrow", ".feather"):
        pytest.importorskip("pyarrow")
    assert cli.main(["export", capture, "-o", f"x{suffix}"]) == 0
    captured = capsys.readouterr()
    assert f"x{suffix}: 24 records" in captured.out
    assert "2 warps found the pool full" in captured.err


def test_the_help_names_every_suffix(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["export", "--help"])
    message = capsys.readouterr().out
    assert [suffix for suffix in suffixes() if suffix.removesuffix(".gz") not in message] == []


@pytest.mark.parametrize(
    ("flags", "records"),
    [
        (["--region", "load"], 8), (["--region", "load", "--region", "d*"], 16), (["--sm", "0,2-3"], 18),
        (["--warp", "1", "--block", "3"], 3), (["--time", "0:100us"], 24), (["--launch", "0"], 24),
    ],
    ids=str,
)  # fmt: skip
def test_only_the_selected_records_are_written(flags: list[str], records: int, capture: str) -> None:
    assert cli.main(["export", capture, "-o", "x.csv", *flags]) == 0
    assert len(list(csv.DictReader(io.StringIO(Path("x.csv").read_text(), newline="")))) == records


def test_empty_time_ranges_export_nothing(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", capture, "-o", "x.csv", "--time", "1ms:"]) == 2
    assert "time 1,000.000 to inf us: not in this trace, which has " in capsys.readouterr().err
    assert not Path("x.csv").exists()


def test_options_of_timelines_reach_the_file(capture: str) -> None:
    assert (
        cli.main(["export", capture, "-o", "x.pftrace", "--group", "warp", "--no-args", "--flow", "load", "dot"]) == 0
    )
    found = replay("x.pftrace")
    assert {one.track[1].partition(" · ")[0] for one in found.slices} == {"warp 0", "warp 1"}
    assert all(not one.args or set(one.args) == {"value"} for one in found.slices)
    assert len(found.arrows) == 8


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-o", "x.csv", "--group", "warp"], "only timelines have this option"),
        (["-o", "x.pftrace", "--flow", "load", "tile"], "no region 'tile' with value="),
        (["-o", "x.doc"], "expected one of .pftrace"),
        (["-o", "nowhere/x.csv"], "create it first"),
        (["-o", "x.csv", "--region", "nosuch"], "not in this trace, which has region dot, load, tile"),
    ],
)
def test_invalid_export_flags_are_refused_in_one_line(
    flags: list[str], message: str, capture: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", capture, *flags]) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in Path().iterdir()) == [capture]


def test_the_output_is_checked_before_the_capture_is_read(
    capture: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(export.filters, "filtered_trace", lambda options: pytest.fail("read"))
    assert cli.main(["export", capture, "-o", "nowhere/x.csv"]) == 2
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert cli.main(["export", capture, "-o", "x.parquet"]) == 2
    assert "pip install" in capsys.readouterr().err


def test_progress_is_shown_on_request(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["export", capture, "-o", "x.json", "--no-progress"])
    quiet = capsys.readouterr().err
    cli.main(["export", capture, "-o", "x.json", "--progress"])
    assert len(capsys.readouterr().err) > len(quiet)


def test_a_limit_is_reported(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["export", capture, "-o", "x.json", "--limit", "5"])
    assert "x.json: 5 of 24 records" in capsys.readouterr().out
    assert json.loads(Path("x.json").read_text())["otherData"]["problems"][0]["kind"] == "limited"
