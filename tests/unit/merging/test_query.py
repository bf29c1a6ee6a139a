"""`kscope merge RUN/ -o FOLDER/` writes hive partitions of Parquet, and `kscope query` runs SQL over them."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from jobs import Job
from simulated import marked

import kscope
import kscope_sim
from kscope.cli import main
from kscope.merging.ranks.gpus import captures
from kscope.merging.ranks.timeline import merge_ranks


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The captures of three ranks; rank 1 begins 5 ms later, and takes 50 us longer in step 2."""
    folder = tmp_path / "run"
    folder.mkdir()
    Job(3, steps=4, late={(1, 2): 50_000}, pause={(1, 0): 5_000_000}).save(folder)
    return folder


def query(folder: Path, sql: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    capsys.readouterr()
    assert main(["query", str(folder), sql, "--csv"]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_a_folder_becomes_a_file_per_rank_on_one_axis(run: Path, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow.parquet")
    assert main(["merge", str(run), "-o", str(tmp_path / "records")]) == 0
    files = sorted((tmp_path / "records").rglob("*.parquet"))
    assert [str(file.relative_to(tmp_path / "records")) for file in files] == [
        f"rank=000{rank}/step.{rank}.parquet" for rank in range(3)
    ]
    merged = merge_ranks(captures(run)).trace
    for rank, file in enumerate(files):
        mine = merged.filter(device=rank)
        start = np.sort(arrow.read_table(file, partitioning=None)["start_ns"].to_numpy())
        expected = np.sort(mine.warps.start_ns[mine.track] + (mine.start_ticks - mine.warps.first_tick[mine.track])
                           * mine.warps.tick_ns[mine.track])  # fmt: skip
        assert len(start) == 24
        assert np.ptp(start - expected) < 1  # on one axis, whose origin may differ
        assert abs(start - expected).max() < 1_000


def test_sql_over_all_ranks_names_the_late_one(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    assert main(["merge", str(run), "-o", str(run)]) == 0
    rows = query(run, "SELECT rank, max(dur_ns) AS longest FROM records WHERE region = 'dot' GROUP BY rank "
                 "ORDER BY longest DESC", capsys)  # fmt: skip
    assert rows[0]["rank"] == "1"
    assert float(rows[0]["longest"]) > float(rows[1]["longest"]) + 40_000


def test_a_dataset_is_not_overwritten(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    assert main(["merge", str(run), "-o", str(run), "--ranks", "1-2"]) == 0
    assert sorted(file.name for file in run.glob("rank=*")) == ["rank=0001", "rank=0002"]
    assert main(["merge", str(run), "-o", str(run)]) == 2
    assert "has a dataset already" in capsys.readouterr().err


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    with kscope.profile(tmp_path / "s.kscope"):
        kscope_sim.launch(marked, grid=5)
    return tmp_path / "s.kscope"


def test_sql_over_one_capture(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    rows = query(capture, "SELECT region, count(*) AS n FROM records GROUP BY region", capsys)
    assert rows == [{"region": "work", "n": "5"}]


def test_answers_as_a_table_and_as_json(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    assert main(["query", str(capture), "SELECT block, NULL AS nothing FROM records ORDER BY 1", "--top", "2"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["block", "nothing"], ["0", "-"], ["1", "-"], ["and", "3", "rows", "more:", "--top", "N"]]
    assert main(["query", str(capture), "SELECT block FROM records ORDER BY 1", "--json", "--top", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["left_out"]) == ([{"block": 0}, {"block": 1}], {"rows": 3})


def test_wrong_sql_and_a_folder_without_a_dataset_are_errors(
    run: Path, capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("duckdb")
    assert main(["query", str(capture), "SELECT nonsense FROM records"]) == 2
    assert "nonsense" in capsys.readouterr().err
    assert main(["query", str(run), "SELECT 1"]) == 2
    assert f"kscope merge {run} -o {run}" in capsys.readouterr().err


def test_without_duckdb_the_error_says_how_to_install_it(
    capture: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert main(["query", str(capture), "SELECT 1"]) == 2
    assert "kscope query needs DuckDB: pip install '.[query]'" in capsys.readouterr().err
