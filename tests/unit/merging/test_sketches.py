"""Distributions of durations of many ranks, in a few kB each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from jobs import Job

from kscope.cli import main
from kscope.errors import FormatError
from kscope.merging.ranks import sketches
from kscope.trace import Trace, decode

pytest.importorskip("ddsketch")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Trace]]:
    """Eight ranks; rank 5's dot always takes 40 us longer."""
    folder = tmp_path_factory.mktemp("run")
    made = Job(8, late={(5, step): 40_000 for step in range(20)})
    traces = [decode(made.capture(rank)) for rank in range(8)]
    for rank, trace in enumerate(traces):
        own = folder / f"rank={rank:04}"
        own.mkdir()
        (own / sketches.FILE).write_bytes(sketches.write(sketches.of_trace(trace), rank))
    return folder, traces


def test_quantiles_of_all_ranks_are_within_the_sketch_s_accuracy(job: tuple[Path, list[Trace]]) -> None:
    folder, traces = job
    found = {(row.kernel, row.region): row for row in sketches.spreads(sketches.files(folder))}
    assert set(found) == {("compute", "load"), ("compute", "dot"), ("my_all_reduce", "exchange")}
    for (_, region), row in found.items():
        durations = np.sort(
            np.concatenate([t.dur_ns[(t.region_names()[t.region] == region) & t.is_span] for t in traces])
        )
        assert (row.ranks, row.count) == (8, len(durations))
        for part, quantile in ((0.5, row.p50_ns), (0.9, row.p90_ns), (0.99, row.p99_ns)):
            true = durations[int(part * (len(durations) - 1))]
            assert abs(quantile - true) <= 1.01 * sketches.ACCURACY * true


def test_the_slow_rank_is_named_with_its_region(
    job: tuple[Path, list[Trace]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = job
    assert main(["ranks", str(folder), "--sketch", "--json"]) == 0
    rows = {row["region"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["dot"]["slowest"] == 5 and rows["dot"]["times"] > 3
    assert 0.9 < rows["load"]["times"] < 1.3
    assert main(["ranks", str(folder), "--sketch"]) == 0
    assert "5: " in next(line for line in capsys.readouterr().out.splitlines() if "compute: dot" in line)


def test_of_two_ranks_the_slow_one_is_compared_with_the_other(job: tuple[Path, list[Trace]]) -> None:
    folder, traces = job
    rows = {
        row.region: row for row in sketches.spreads([folder / f"rank={rank:04}" / sketches.FILE for rank in (4, 5)])
    }
    middle = [np.median(t.dur_ns[(t.region_names()[t.region] == "dot") & t.is_span]) for t in traces[4:6]]
    assert rows["dot"].times == pytest.approx(middle[1] / middle[0], rel=0.03)


def test_a_rank_s_sketch_is_small_and_a_damaged_one_is_refused(job: tuple[Path, list[Trace]], tmp_path: Path) -> None:
    folder, _ = job
    file = folder / "rank=0000" / sketches.FILE
    assert file.stat().st_size < 4_000
    good = json.loads(file.read_text())
    for wrong in ({}, good | {"version": 2}, good | {"sketches": [["k", "r", "x", [1], [0]]]}):
        (tmp_path / sketches.FILE).write_text(json.dumps(wrong))
        with pytest.raises(FormatError, match="line 1 is not what kscope run --sketch writes"):
            sketches.spreads(sketches.files(tmp_path))


def test_the_flag_needs_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.py").write_text("")
    assert main(["run", "--sketch", str(tmp_path / "x.py")]) == 2
    assert "expected --ranks FOLDER beside it" in capsys.readouterr().err
    assert main(["ranks", str(tmp_path), "--sketch"]) == 2
    assert "--ranks" in capsys.readouterr().err


def test_without_ddsketch_the_script_does_not_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.py").write_text("raise SystemExit(7)")
    monkeypatch.setitem(sys.modules, "ddsketch", None)
    assert main(["run", "--ranks", str(tmp_path / "run"), "--sketch", str(tmp_path / "x.py")]) == 2
    assert "sketches need the package ddsketch: pip install" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
