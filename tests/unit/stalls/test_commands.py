"""kscope sample, stalls, annotate and crosscheck on simulated kernels."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kscope.analysis.samples.annotated import annotate
from kscope.capture.capture import Capture
from kscope.cli import main
from kscope.trace import decode

from . import programs


def test_stalls_lists_regions_with_reasons_and_what_they_mean(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["stalls", path]) == 0
    text = capsys.readouterr().out
    assert re.search(r"load +[\d,]+ +6\d\.\d% .*long_scoreboard 100%", text)
    assert re.search(r"issued +stalled +waits for", text)
    assert re.search(rf"load .*\n +[\d.]+%  0x\w+ work \(programs\.py:{programs.line('warp.work(6000')}\)\n", text)
    assert "the warp waits for a load from global or local memory" in text and "coalesce" in text


@pytest.mark.parametrize("by", ["region", "line", "instruction", "kernel"])
def test_stalls_as_json(path: str, by: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stalls", path, "--by", by, "--json", "--top", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["by"], found["period"]) == ("kscope.stalls", by, 64)
    assert len(found["rows"]) == (1 if by == "kernel" else 2)
    if by == "region":
        assert found["rows"][0]["executions"] == 8 * 2 * 20 and found["left_out"]["rows"] == 2
        assert found["reasons"]["long_scoreboard"]["meaning"]
        assert found["rows"][0]["stalled"] == pytest.approx(1 - found["rows"][0]["issued"])
        first, *_ = found["rows"][0]["instructions"]
        assert first["name"].endswith(" work") and first["where"] == f"programs.py:{programs.line('warp.work(6000')}"
        assert 0 < first["samples"] <= found["rows"][0]["samples"]


@pytest.mark.parametrize("more", [["--by", "line"], ["--by", "instruction"], ["--by", "kernel"], ["-o", "all.csv"]])
def test_rows_without_executions_need_no_records(
    path: str, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decoded = list[object]()
    monkeypatch.setattr("kscope.cli.common.filters.decode", lambda one: (decoded.append(one), decode(one))[1])
    monkeypatch.chdir(tmp_path)
    assert main(["stalls", path, *more]) == 0 and capsys.readouterr().out
    assert not decoded
    assert main(["stalls", path]) == 0 and len(decoded) == 1
    assert "per execution" in capsys.readouterr().out


def test_a_capture_without_samples_and_a_wrong_kernel_are_refused(
    tmp_path: Path, path: str, capture: Capture, capsys: pytest.CaptureFixture[str]
) -> None:
    replace(capture, samples=None).save(tmp_path / "none.kscope")
    for command in ("stalls", "annotate", "crosscheck"):
        assert main([command, str(tmp_path / "none.kscope")]) == 2
        assert "record with kscope run --stalls" in capsys.readouterr().err
    assert main(["stalls", path, "--kernel", "thre"]) == 2
    assert "did you mean three?" in capsys.readouterr().err


def test_annotate_shows_the_source_beside_its_samples(
    path: str, capture: Capture, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    [file] = annotate(decode(capture), programs.samples(capture)).files
    lines = {line.number: line for line in file.lines}
    load = lines[programs.line("warp.work(6000")]
    assert load.text.strip() == 'warp.work(6000, why="long_scoreboard")' and load.share > 0.55
    assert list(load.reasons) == ["long_scoreboard"] and load.regions == ("load",) and load.code
    begins = lines[programs.line('region("load")')].begins
    assert [one.name for one in begins] == ["load"] and begins[0].mean_ns == pytest.approx(6007 / 1.98, rel=0.01)
    assert main(["annotate", path]) == 0
    text = capsys.readouterr().out
    assert 'warp.work(6000, why="long_scoreboard")' in text and "^ load: " in text
    assert main(["annotate", path, "-o", str(tmp_path / "x.html")]) == 0
    page = (tmp_path / "x.html").read_text()
    assert "<script" not in page and "warp.work(6000, why=&quot;long_scoreboard&quot;)" in page
    assert "title='long_scoreboard 100.0%'" in page


def test_annotate_shows_executed_instructions_and_the_most_registers_of_each_line(
    capture: Capture, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    function = programs.function(capture)
    work = [one for one in range(len(function.at)) if function.chain(one)[0][1] == programs.line("warp.work(6000")]
    counted = programs.changed(capture, live=tuple(40 + one if one in work else 7 for one in range(len(function.at))))
    [file] = annotate(decode(counted), programs.samples(counted)).files
    assert {line.number: line.registers for line in file.lines}[programs.line("warp.work(6000")] == 40 + max(work)
    rows = programs.samples(capture).rows
    issued = rows["reason"] == programs.samples(capture).reasons.index("selected")
    assert sum(line.executed for line in file.lines) == pytest.approx(1) and rows["count"][issued].sum() > 0
    for line in file.lines:
        assert line.executed * rows["count"][issued].sum() == pytest.approx(line.samples and line.samples * line.issued)
    counted.save(tmp_path / "run.kscope")
    for columns, shown in (("140", True), ("80", False)):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["annotate", str(tmp_path / "run.kscope")]) == 0
        text = capsys.readouterr().out
        assert ("executed  registers" in text) == shown and (f"{40 + max(work):>9}  long" in text) == shown
    assert main(["annotate", str(tmp_path / "run.kscope"), "-o", str(tmp_path / "x.html")]) == 0
    assert f"<td>{40 + max(work)}<td>" in (tmp_path / "x.html").read_text()


def test_the_page_shows_names_of_files_and_kernels_as_text(capture: Capture, tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    places = tuple(((f"/{hostile}.py", line),) for [(_, line)] in programs.function(capture).places)
    replace(programs.changed(capture, name=hostile, places=places)).save(tmp_path / "x.kscope")
    assert main(["annotate", str(tmp_path / "x.kscope"), "-o", str(tmp_path / "x.html")]) == 0
    assert "<script" not in (tmp_path / "x.html").read_text()


def test_any_kernel_is_sampled_without_marks(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "import sys\nimport kscope_sim\n\ndef plain(warp):\n    warp.work(6400, why='lg_throttle')\n"
        "    warp.work(640)\n\nkscope_sim.launch(plain, 4, 32)\nsys.exit(int(sys.argv[1]))\n"
    )
    assert main(["sample", "--period", "2^6", "train.py", "0"]) == 0
    assert "train.kscope: 440 samples of 1 kernel; kscope stalls train.kscope" in capsys.readouterr().err
    assert main(["stalls", "train.kscope", "--by", "line"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"train\.py:5 +400 +90\.9%", text) and "lg_throttle 100%" in text
    with pytest.raises(SystemExit):
        main(["sample", "-o", "failed.kscope", "train.py", "3"])
    assert Path("failed.failed.kscope").exists()


def test_a_reader_names_lines_of_kernels_without_marks(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, last = programs.line("warp.work(6000"), programs.line('region("math")')
    assert (
        main(["stalls", path, "--mark", f"mine=programs.py:{first}-{last}", "--mark", f"one=programs.py:{last}"]) == 0
    )
    text = capsys.readouterr().out
    assert re.search(r"mine +[\d,]+ +6\d\.\d% .*long_scoreboard", text) and re.search(r"\bone +\d", text)
    for command in ("stalls", "annotate", "crosscheck"):
        assert main([command, path, "--mark", "mine=other.py:1-9"]) == 2
        assert "--mark mine=other.py:1-9: no sampled instruction is from these lines" in capsys.readouterr().err


SCRIPT = """import sys, kscope_sim

def k(warp):
    warp.work(6400)
    warp.work(640)

kscope_sim.launch(k, 4, 32)
print(*sys.argv[1:])
"""


def test_a_capture_of_sample_keeps_named_lines_as_regions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    marks = ["--mark", "load=train.py:4-4", "--mark", "none=train.py:90"]
    assert main(["sample", "--period", "64", *marks, "train.py"]) == 0
    assert "mark none=train.py:90: no sampled instruction is from these lines" in capsys.readouterr().err
    assert main(["stalls", "train.kscope"]) == 0
    assert re.search(r"load +400 +90\.9%", capsys.readouterr().out)
    assert main(["annotate", "train.kscope", "--json"]) == 0
    [file] = json.loads(capsys.readouterr().out)["files"]
    assert [line["regions"] for line in file["lines"]] == [["load"], ["(no region)"]]
    assert main(["crosscheck", "train.kscope"]) == 1
    assert capsys.readouterr().out == "no kernel has both records and samples\n"
    assert main(["sample", "--mark", "load=4", "train.py"]) == 2
    assert "expected NAME=FILE:FIRST-LAST" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "sample"])
@pytest.mark.parametrize(
    ("typed", "written", "passed"),
    [
        (["train.py", "-o", "s.kscope"], "s", []),
        (["train.py", "a", "--output", "s.kscope", "-o", "t.kscope"], "s", ["a", "-o", "t.kscope"]),
        (["train.py", "--output=s.kscope", "b"], "s", ["b"]),
        (["-o", "own.kscope", "train.py", "-o", "s.kscope"], "own", ["-o", "s.kscope"]),
        (["--", "train.py", "-o", "s.kscope"], "train", ["-o", "s.kscope"]),
        (["train.py", "--", "-o", "s.kscope"], "train", ["-o", "s.kscope"]),
        (["train.py", "a", "--", "-o", "s.kscope"], "train", ["a", "-o", "s.kscope"]),
        (["train.py", "-o", "s.txt"], "train", ["-o", "s.txt"]),
        (["train.py", "-o"], "train", ["-o"]),
    ],
)
def test_an_output_behind_the_script_is_the_command_s_if_it_is_a_capture(
    command: str, typed: list[str], written: str, passed: list[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    assert main([command, *typed]) == 0
    found = capsys.readouterr().out.split()
    assert [word for word in found if word != "--"] == passed  # which argparse drops or passes on, by its version
    assert [one.name for one in tmp_path.glob("*.kscope")] == [f"{written}.kscope"]


def test_the_source_of_a_script_by_its_relative_name_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text("import kscope_sim\n\ndef k(warp):\n    warp.work(6400)\n\nkscope_sim.launch(k, 4, 32)\n")
    for command in (["run", "--stalls"], ["sample"]):
        assert main([*command, "--period", "64", "job.py"]) == 0
        assert main(["annotate", "job.kscope"]) == 0
        assert re.search(r"100%.* 4 +warp.work\(6400\)", capsys.readouterr().out)
        assert main(["annotate", "job.kscope", "-o", "page.html"]) == 0
        assert main(["export", "job.kscope", "-o", "report.html"]) == 0
        for page in ("page.html", "report.html"):
            assert "warp.work(6400)" in Path(page).read_text()


def test_run_records_marks_and_samples(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "import kscope, kscope_sim, sys\n\ndef k(warp):\n    for _ in sys.argv:\n        with kscope.region('a'):\n"
        "            warp.work(6400)\n\nkscope_sim.launch(k, 4, 32)\n"
    )
    command = ["run", "--stalls", "--period", "64", "--records", "1", "train.py"]
    assert main([*command, *"abcdefghi"]) == 0
    problem = r"kscope: train\.kscope: \d+ records, [\d,]+ samples \(kscope stalls train\.kscope\), 1 problem:\n"
    assert re.match(problem, capsys.readouterr().err)
    assert main(command) == 0
    counts, more = "4 records, 400 samples", "kscope summary train.kscope, kscope stalls train.kscope"
    assert capsys.readouterr().err == f"kscope: train.kscope: {counts}; {more}\n"
    assert main(["crosscheck", "train.kscope"]) == 0
    capsys.readouterr()
    for wrong in ("2^x", "3^4", "1k", "100", "0", "2^4", "2^32", "2^64"):
        for command in (["run", "--stalls"], ["sample"]):
            assert main([*command, "--period", wrong, "train.py"]) == 2
            expected = (
                f"kscope: --period {wrong}: expected a power of two from 2^5 to 2^31 cycles, such as 2^10 or 1024\n"
            )
            assert capsys.readouterr().err == expected
    assert main(["run", "--period", "2^8", "train.py"]) == 2
    assert capsys.readouterr().err == "kscope: --period 2^8: needs --stalls\n"


def test_the_json_answers_have_their_rows(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crosscheck", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["agrees"] is True and {row["region"] for row in found["rows"]} == {"load", "math", "inner"}
    assert main(["annotate", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(line["samples"] for file in found["files"] for line in file["lines"])
