"""Ranks of a job: each writes its own file and is named in it; two that would write one file are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kscope
import kscope_sim
from kscope.errors import UsageError
from kscope.session import output_locks
from kscope.session.launcher import Place, expanded, place

SECOND = """
import sys
import kscope, kscope_sim
try:
    kscope.profile(sys.argv[1], export=sys.argv[2:])
    print("recorded")
except kscope.UsageError as error:
    print(error)
"""


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is rank 1 of 2."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(output_locks, "_held", {})
    yield
    for descriptor in output_locks._held.values():
        os.close(descriptor)


def other(*argv: object, **environment: str) -> str:
    """The output of another process that profiles with these paths."""
    command = [sys.executable, "-c", SECOND, *map(str, argv)]
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path, **environment}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, Place(0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, Place(3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, Place(1, 2)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, Place(1, 2)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6"}, Place(5, 6)),
        ({"RANK": "gold", "WORLD_SIZE": "8"}, Place(0, 1)),
        ({"RANK": "8", "WORLD_SIZE": "8"}, Place(0, 1)),
    ],
)
def test_launchers_set_rank_and_world_in_the_environment(environment: dict[str, str], found: Place) -> None:
    assert place(environment) == found


def test_codes_in_a_path_are_rank_and_process(rank: None) -> None:
    assert expanded("a%r/run.%r.%p.kscope") == f"a1/run.1.{os.getpid()}.kscope"
    assert expanded("100%%r 5%x %") == "100%r 5%x %"


def test_a_capture_names_its_rank_and_its_process(rank: None, tmp_path: Path) -> None:
    assert kscope_sim.launch
    with kscope.profile(tmp_path / "run.%r.kscope", export=tmp_path / "run.%r.json") as prof:
        pass
    assert prof.path == tmp_path / "run.1.kscope"
    assert (tmp_path / "run.1.json").exists()
    host = kscope.load_capture(tmp_path / "run.1.kscope").host
    assert (host["rank"], host["world"], host["pid"]) == (1, 2, os.getpid())
    assert host["hostname"]


def test_a_second_rank_may_not_write_the_same_capture_or_export(rank: None, tmp_path: Path) -> None:
    run, table = tmp_path / "run.kscope", tmp_path / "table.csv"
    kscope.profile(run, export=table)
    kscope.profile(run, export=table)  # the same rank may
    refused = other(run, RANK="0")
    assert f"rank 1 (process {os.getpid()} on " in refused
    assert "%r in a name is the rank, as in 'run.%r.kscope'" in refused
    assert "'table.%r.csv'" in other(tmp_path / "mine.kscope", table, RANK="0")
    (tmp_path / "link.kscope").symlink_to(run)
    assert "of this job writes this file" in other(tmp_path / "link.kscope", RANK="0")
    assert other(tmp_path / "run.%r.kscope", tmp_path / "table.%r.csv", RANK="0") == "recorded"


def test_a_forked_child_is_another_process(rank: None, tmp_path: Path) -> None:
    kscope.profile(tmp_path / "run.kscope")
    child = os.fork()
    if not child:
        try:
            kscope.profile(tmp_path / "run.kscope")
        except UsageError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_claim_ends_with_its_process_and_leaves_no_file(rank: None, tmp_path: Path) -> None:
    assert other(tmp_path / "run.kscope", RANK="0") == "recorded"
    assert list(tmp_path.iterdir()) == []
    kscope.profile(tmp_path / "run.kscope")


def test_a_rank_that_records_nothing_claims_nothing(rank: None, tmp_path: Path) -> None:
    kscope.profile(tmp_path / "run.kscope", enabled=False)
    assert other(tmp_path / "run.kscope", RANK="0") == "recorded"


def test_files_are_not_claimed_without_a_launcher(tmp_path: Path) -> None:
    kscope.profile(tmp_path / "run.kscope")
    assert other(tmp_path / "run.kscope") == "recorded"
    assert list(tmp_path.iterdir()) == []
