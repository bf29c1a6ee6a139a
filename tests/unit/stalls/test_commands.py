"""kscope sample, stalls, annotate and crosscheck on simulated kernels."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kscope.analysis.samples.annotated import annotate
from kscope.analysis.samples.crosscheck import Crossed, crosscheck, doubts
from kscope.capture.capture import Capture
from kscope.capture.samples import SampledFunction, Samples
from kscope.cli import main
from kscope.trace import decode

from . import programs


@pytest.fixture(scope="module")
def capture() -> Capture:
    return programs.recorded()


@pytest.fixture
def path(tmp_path: Path, capture: Capture) -> str:
    capture.save(tmp_path / "run.kscope")
    return str(tmp_path / "run.kscope")


def changed(capture: Capture, **fields: object) -> Capture:
    """The capture with another function."""
    assert capture.samples is not None
    [function] = capture.samples.functions
    return replace(capture, samples=replace(capture.samples, functions=(replace(function, **fields),)))  # type: ignore[arg-type]


def crossed(capture: Capture) -> dict[str, Crossed]:
    assert capture.samples is not None
    return {row.region: row for row in crosscheck(decode(capture), capture.samples).rows}


def test_stalls_lists_regions_with_reasons_and_what_they_mean(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stalls", path]) == 0
    text = capsys.readouterr().out
    assert re.search(r"load +[\d,]+ +6\d\.\d% .*long_scoreboard 100%", text)
    assert "the warp waits for a load from global or local memory" in text and "coalesce" in text


@pytest.mark.parametrize("by", ["region", "line", "instruction", "kernel"])
def test_stalls_as_json(path: str, by: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stalls", path, "--by", by, "--json", "--top", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["by"], found["period"]) == ("kscope.stalls", by, 64)
    assert len(found["rows"]) == (1 if by == "kernel" else 2)
    if by == "region":
        assert found["rows"][0]["executions"] == 8 * 2 * 20 and found["left_out"] == {"rows": 2}
        assert found["reasons"]["long_scoreboard"]["meaning"]


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


def test_clocks_and_samples_agree_within_a_point(path: str, capture: Capture, capsys) -> None:
    found = crossed(capture)
    assert set(found) == {"load", "math", "inner"}
    assert all(row.verdict == "agrees" and abs(row.clocks - row.samples) < 0.01 for row in found.values())
    assert sum(row.clocks for row in found.values()) == pytest.approx(1)
    assert main(["crosscheck", path]) == 0
    assert capsys.readouterr().out.count("agrees") == 3


def test_instructions_of_other_lines_inside_a_region_are_named(tmp_path: Path, capture: Capture, capsys) -> None:
    function = _function(capture)
    load = next(one for one, text in enumerate(function.text) if "work" in text and function.stack(one) == ("load",))
    math = next(one for one, text in enumerate(function.text) if "work" in text and function.stack(one) == ("math",))
    opened = list(function.opened)
    opened[math] = function.opened[load]  # the compiler moved the arithmetic into the load
    moved = changed(capture, opened=tuple(opened))
    found = crossed(moved)
    assert found["load"].verdict == "moved" and found["math"].verdict == "moved"
    assert f"(programs.py:{programs.line('warp.work(3400)')})" in found["load"].foreign[0]
    assert found["math"].missing == found["load"].foreign
    assert found["inner"].verdict != "moved"
    moved.save(tmp_path / "moved.kscope")
    assert main(["crosscheck", str(tmp_path / "moved.kscope")]) == 1
    assert "are at instructions of other lines" in (text := capsys.readouterr().out) and "outside of it" in text
    assert main(["summary", str(tmp_path / "moved.kscope")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "! kernel three: region load: " in text and "samples are at other lines' instructions; kscope" in text
    assert "! kernel three: region math: 99% of its lines' samples are outside of it" in text


def test_doubts_need_no_clocks(capture: Capture) -> None:
    function = _function(capture)
    load = next(one for one in range(len(function.at)) if function.stack(one) == ("load",))
    opened = tuple(function.opened[load] if "math" in function.stack(one) else number
                   for one, number in enumerate(function.opened))  # fmt: skip
    for one in (capture, changed(capture, opened=opened)):
        trace, samples = decode(one), _samples(one)
        assert list(doubts(trace, samples)) == list(crosscheck(trace, samples).doubts)
        assert bool(list(doubts(trace, samples))) == (one is not capture)


def test_instructions_of_the_header_of_marks_are_nobody_s(capture: Capture) -> None:
    function = _function(capture)
    load = next(one for one, text in enumerate(function.text) if "work" in text and function.stack(one) == ("load",))
    places = list(function.places)
    places[function.place[load]] = (("/x/kscope.cuh", 5), (programs.FILE, 1))  # a mark's code, called from elsewhere
    found = crossed(changed(capture, places=tuple(places)))["load"]
    assert (found.verdict, found.foreign) == ("agrees", ())
    places[function.place[load]] = (("/x/other.h", 5), (programs.FILE, 1))
    assert crossed(changed(capture, places=tuple(places)))["load"].verdict == "moved"


def test_a_region_without_instructions_is_hollow_and_one_without_readings_unknown(capture: Capture) -> None:
    function = _function(capture)
    inner = [one for one in range(len(function.at)) if "inner" in function.stack(one)]
    text = [("CS2R.32 R4, SR_CLOCKLO" if one in inner else words) for one, words in enumerate(function.text)]
    assert crossed(changed(capture, text=tuple(text)))["inner"].verdict == "hollow"
    assert crossed(changed(capture, unresolved=("load",)))["load"].verdict == "unknown"


def loading_more(capture: Capture) -> Capture:
    """The capture with twice the samples of its load."""
    samples = _samples(capture)
    more = samples.rows.copy()
    more["count"][more["reason"] == samples.reasons.index("long_scoreboard")] *= 2
    return replace(capture, samples=replace(samples, rows=more))


def test_shares_that_differ_without_moved_instructions_are_perturbed(capture: Capture) -> None:
    found = crossed(loading_more(capture))
    assert {found[name].verdict for name in ("load", "math")} == {"perturbed"}


def test_shares_that_differ_where_each_warp_has_few_samples_are_unknown(
    capture: Capture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sampler takes warps in turns: a few samples of each are of the same moments of every launch."""
    more = loading_more(capture)
    rows = _samples(more).rows.copy()
    rows["count"] //= 600
    few = replace(more, samples=replace(_samples(more), rows=rows))
    assert rows["count"].sum() < 10 * len(decode(few).warps) < _samples(more).rows["count"].sum()
    assert {crossed(few)[name].verdict for name in ("load", "math")} == {"unknown"}
    few.save(tmp_path / "few.kscope")
    assert main(["crosscheck", str(tmp_path / "few.kscope")]) == 1
    assert "each warp has few samples: pass a shorter period" in " ".join(capsys.readouterr().out.split())


def test_shares_of_some_warps_that_differ_from_those_of_all_are_partial(
    capture: Capture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = replace(loading_more(capture), options={"block": [0, 1, 1]})
    assert {crossed(some)[name].verdict for name in ("load", "math")} == {"partial"}
    some.save(tmp_path / "some.kscope")
    assert main(["crosscheck", str(tmp_path / "some.kscope")]) == 1
    assert "only some warps recorded, and all were sampled" in " ".join(capsys.readouterr().out.split())
    assert {row.verdict for row in crossed(replace(capture, options={"block": [0, 1, 1]})).values()} == {"agrees"}


def test_a_kernel_without_samples_is_a_problem(capture: Capture) -> None:
    samples = replace(_samples(capture), functions=(replace(_function(capture), kernel=None),))
    found = crosscheck(decode(capture), samples)
    assert not found.agrees and found.problems == ("kernel three: it has no samples",)


def test_annotate_shows_the_source_beside_its_samples(
    path: str, capture: Capture, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    [file] = annotate(decode(capture), _samples(capture)).files
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
    function = _function(capture)
    work = [one for one in range(len(function.at)) if function.chain(one)[0][1] == programs.line("warp.work(6000")]
    counted = changed(capture, live=tuple(40 + one if one in work else 7 for one in range(len(function.at))))
    [file] = annotate(decode(counted), _samples(counted)).files
    assert {line.number: line.registers for line in file.lines}[programs.line("warp.work(6000")] == 40 + max(work)
    rows = _samples(capture).rows
    issued = rows["reason"] == _samples(capture).reasons.index("selected")
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
    places = tuple(((f"/{hostile}.py", line),) for [(_, line)] in _function(capture).places)
    replace(changed(capture, name=hostile, places=places)).save(tmp_path / "x.kscope")
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
    assert main(["crosscheck", path]) == 0
    assert main(["stalls", path, "--mark", "mine=other.py:1-9"]) == 2
    assert "no sampled instruction is from these lines" in capsys.readouterr().err


def test_run_records_marks_and_samples(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "import kscope, kscope_sim\n\ndef k(warp):\n    with kscope.region('a'):\n        warp.work(6400)\n\n"
        "kscope_sim.launch(k, 4, 32)\n"
    )
    assert main(["run", "--stalls", "--period", "64", "train.py"]) == 0
    assert main(["crosscheck", "train.kscope"]) == 0
    for wrong in ("2^x", "3^4", "1k"):
        assert main(["run", "--stalls", "--period", wrong, "train.py"]) == 2
        assert "expected a power of two, such as 2^10" in capsys.readouterr().err
    assert main(["run", "--stalls", "--period", "100", "train.py"]) == 2


def test_the_json_answers_have_their_rows(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crosscheck", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["agrees"] is True and {row["region"] for row in found["rows"]} == {"load", "math", "inner"}
    assert main(["annotate", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(line["samples"] for file in found["files"] for line in file["lines"])


def _samples(capture: Capture) -> Samples:
    assert capture.samples is not None
    return capture.samples


def _function(capture: Capture) -> SampledFunction:
    return _samples(capture).functions[0]


def test_samples_outside_the_code_have_no_region(capture: Capture) -> None:
    rows = _samples(capture).rows.copy()
    rows["pc"] += np.uint32(8)
    found = crossed(replace(capture, samples=replace(_samples(capture), rows=rows)))
    assert {row.count for row in found.values()} == {0}
