"""Files that the ranks of `kscope run --ranks` write together: a dataset in hive partitions, and durations in
one file.
"""

from __future__ import annotations

import csv
import importlib.util
import io
from pathlib import Path

import pytest
from ranked import SCRIPT, finished, started

from kscope.capture.capture import load_capture
from kscope.cli import main
from kscope.merging.ranks import sketches


def test_each_rank_writes_its_partition_of_a_dataset_on_one_axis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrow = pytest.importorskip("pyarrow.parquet")
    done = finished(*(started(tmp_path, rank, 3) for rank in range(3)))
    assert [code for _, _, code in done] == [0, 0, 0], done
    assert "run/rank=*/train.parquet: 6 records of 3 ranks, within \N{PLUS-MINUS SIGN}" in done[0][1]
    assert not any("parquet" in printed for _, printed, _ in done[1:])
    tables = [arrow.read_table(tmp_path / f"run/rank=000{rank}/train.parquet", partitioning=None) for rank in range(3)]
    assert [len(one) for one in tables] == [1, 2, 3]
    begins = [min(one["start_ns"].to_pylist()) for one in tables]
    assert 0 <= min(begins) < 1_000_000  # ns after the first warp of all ranks
    after = [load_capture(tmp_path / f"run/rank=000{rank}/train.kscope").host["started"] for rank in (0, 2)]
    assert max(begins) < 60e9 and after[0] != after[1]
    if importlib.util.find_spec("duckdb"):
        sql = "SELECT rank, count(*) AS n FROM records WHERE region = 'work' GROUP BY rank ORDER BY rank"
        assert main(["query", str(tmp_path / "run"), sql, "--csv"]) == 0
        found = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert found == [{"rank": str(rank), "n": str(1 + rank)} for rank in range(3)]


def test_without_pyarrow_a_line_says_what_writes_the_dataset_later(tmp_path: Path) -> None:
    without = "import sys; sys.modules['pyarrow'] = None\n" + SCRIPT
    done = finished(*(started(tmp_path, rank, 2, script=without) for rank in range(2)))
    assert [code for _, _, code in done] == [0, 0], done
    [line] = [one for _, printed, _ in done for one in printed.splitlines() if "Parquet" in one]
    assert "records of ranks 0-1 were not written as Parquet" in line and "need pyarrow: pip install" in line
    assert line.endswith("kscope merge run -o data/ writes all")
    assert not list(tmp_path.rglob("*.parquet"))


def test_of_a_job_in_which_a_rank_failed_the_others_keep_their_durations(tmp_path: Path) -> None:
    pytest.importorskip("ddsketch")
    done = finished(*(started(tmp_path, rank, 2, "--sketch", fails=1) for rank in range(2)))
    assert [code for _, _, code in done] == [0, 3], done
    assert "not written as Parquet: a rank failed; kscope merge run -o data/ writes all" in done[0][1]
    assert [str(one.relative_to(tmp_path)) for one in sketches.files(tmp_path)] == ["run/rank=0000/sketches.jsonl"]


def test_a_forked_child_leaves_the_job_to_its_parent(tmp_path: Path) -> None:
    forks = SCRIPT + "\nchild = os.fork()\nif child: assert os.waitpid(child, 0)[1] == 0\n"
    done = finished(*(started(tmp_path, rank, 2, script=forks) for rank in range(2)))
    assert [code for _, _, code in done] == [0, 0], done
    assert not any("has left" in printed for _, printed, _ in done)


GLOO = """
import os
import torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"),
                        rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
dist.barrier()
"""
ENDS = {
    "kept": GLOO,
    "destroyed": GLOO + "dist.destroy_process_group()\n",
    "of one rank": GLOO + "if os.environ['RANK'] == '0': dist.destroy_process_group()\n",
    "none": "",
}


@pytest.mark.parametrize(
    "end",
    [*(pytest.param(one, marks=pytest.mark.variation) for one in ("kept", "of one rank")), "destroyed", "none"],
    ids=str,
)
def test_durations_of_all_ranks_are_gathered_by_torch_distributed(
    end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ddsketch")
    if end != "none":
        pytest.importorskip("torch")
    done = finished(*(started(tmp_path, rank, 2, "--sketch", script=ENDS[end] + SCRIPT) for rank in range(2)))
    assert [code for _, _, code in done] == [0, 0], done
    files = [str(one.relative_to(tmp_path)) for one in sketches.files(tmp_path)]
    if end in ("kept", "destroyed"):
        assert files == ["run/sketches.jsonl"]
        assert "run/sketches.jsonl: durations of 2 ranks, " in done[0][1] and "gathered in" in done[0][1]
    else:
        assert files == [f"run/rank=000{rank}/sketches.jsonl" for rank in range(2)]
    [row] = sketches.spreads(sketches.files(tmp_path))
    assert (row.region, row.ranks, row.count, row.slowest) == ("work", 2, 3, 1)
    assert main(["ranks", str(tmp_path / "run"), "--sketch"]) == 0
    assert "1: " in capsys.readouterr().out
