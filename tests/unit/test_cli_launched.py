"""`kscope run` of a launcher: every program that it starts is recorded into a file of its rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

import kscope
from kscope.cli.running import launched, program
from kscope.cli.running.launched.sitecustomize import recording_command

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = pytest.mark.skipif(find_spec("torch") is not None, reason="the installed torch comes before the stand-in")
LAUNCHER = """
import os, subprocess, sys, time
command = [sys.executable, "-u", *sys.argv[1:]]
children = [
    subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "RANK": rank, "WORLD_SIZE": "2"})
    for rank in "01"
]
while "TOGETHER" in os.environ and all(child.poll() is None for child in children):
    time.sleep(0.01)
for child in children:
    child.stdin.close()
subprocess.run([sys.executable, "-c", "import sitecustomize; print('helper', sitecustomize.ran)"], check=True)
sys.exit(max(child.wait() for child in children))
"""
SCRIPT = """
import os, subprocess, sys
import kscope, kscope_sim

def kernel(warp):
    with kscope.region("work"):
        warp.work(60_000)

kscope_sim.launch(kernel, grid=1, block=32)
if "TOGETHER" in os.environ:  # until another rank has ended
    sys.stdin.read()
subprocess.run([sys.executable, "plain.py"], check=True)
sys.exit(int(sys.argv[1]))
"""
MAIN = "kscope/cli/running/launched/__main__.py"


def run(folder: Path, *argv: str, command: str = "run") -> subprocess.CompletedProcess[str]:
    """`kscope run argv`, or another command, in a folder with a launcher."""
    (folder / "torchrun").write_text(LAUNCHER)
    (folder / "torch" / "distributed").mkdir(parents=True)
    (folder / "torch" / "distributed" / "run.py").write_text(LAUNCHER)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text("ran = True")
    (folder / "plain.py").write_text("import os; os.write(1, b'child of a rank\\n')  # in one piece: two ranks write")
    path = os.pathsep.join(map(str, (*(ROOT / part for part in (".", "frontends", "runtime")), folder / "site")))
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    return subprocess.run(
        [sys.executable, "-m", "kscope", command, *argv], cwd=folder, env={**environment, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_launcher_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "torchrun").write_text("raise SystemExit(7)")
    (tmp_path / "bin" / "torchrun").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(SystemExit, match="7"):
        program.script("torchrun")()
    with pytest.raises(kscope.UsageError, match="deepspeed: no such file, and no such launcher on the PATH"):
        program.script("deepspeed")


def test_a_line_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Python does not buffer, the pieces of two ranks would mix."""
    pieces: list[str] = []
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=pieces.append))
    program.note("2 records")
    assert [piece for piece in pieces if piece] == ["kscope: 2 records\n"]


@pytest.mark.parametrize(
    "launcher", [["torchrun"], pytest.param(["-m", "torch.distributed.run"], marks=STAND_IN)], ids=" ".join
)
def test_each_rank_of_a_launcher_is_recorded_into_its_own_file(tmp_path: Path, launcher: list[str]) -> None:
    done = run(tmp_path, "--warp", "0", *launcher, "train.py", "0")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "child of a rank", "child of a rank", "helper True"]
    assert sorted(done.stderr.splitlines()) == [
        f"kscope: train.rank{rank}.kscope: 1 records; kscope summary train.rank{rank}.kscope" for rank in "01"
    ]
    for rank in (0, 1):
        capture = kscope.load_capture(tmp_path / f"train.rank{rank}.kscope")
        assert capture.host["rank"] == rank
        assert capture.options["warp"] == [0]
        assert len(kscope.decode(capture)) == 1
    assert sorted(path.name for path in tmp_path.glob("*.kscope")) == ["train.rank0.kscope", "train.rank1.kscope"]


def test_each_rank_of_a_launcher_is_sampled_into_its_own_file(tmp_path: Path) -> None:
    done = run(tmp_path, "--period", "32", "torchrun", "train.py", "0", command="sample")
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        samples = kscope.load_capture(tmp_path / f"train.rank{rank}.kscope").samples
        assert samples is not None and len(samples)


def test_ranks_of_a_launcher_meet_in_the_folder_of_the_job(tmp_path: Path) -> None:
    done = run(tmp_path, "--ranks", "run", "torchrun", "train.py", "0")
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        own = tmp_path / "run" / f"rank={rank:04}"
        assert len(kscope.decode(kscope.load_capture(own / "train.kscope"))) == 1
        assert json.loads((own / "clock.json").read_text())["rank"] == rank


def test_a_file_without_the_rank_is_refused_for_the_second_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOGETHER", "1")
    done = run(tmp_path, "-o", "run.kscope", "torchrun", "train.py", "0")
    assert done.returncode == 2
    assert "of this job writes this file; %r in a name is the rank, as in 'run.%r.kscope'" in done.stderr


def test_a_launcher_ends_with_its_own_exit_code(tmp_path: Path) -> None:
    assert run(tmp_path, "-q", "-o", "run.%r.kscope", "torchrun", "train.py", "5").returncode == 5
    assert sorted(path.name for path in tmp_path.glob("*.kscope")) == ["run.0.failed.kscope", "run.1.failed.kscope"]


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (["-u", "-W", "ignore", "a.py", "-c", "x"], ["-u", "-W", "ignore", MAIN, "run", "-q", "a.py", "-c", "x"]),
        (["-m", "pkg.train", "3"], [MAIN, "run", "-q", "-m", "pkg.train", "3"]),
        (["-c", "print()"], None),
        (["-"], None),
        ([], None),
    ],
)
def test_the_command_line_of_a_child_is_that_of_kscope_run(command: list[str], found: list[str] | None) -> None:
    line = recording_command(["python", *command], ["run", "-q"])
    expected = found and [str(ROOT / word) if word == MAIN else word for word in (sys.executable, *found)]
    assert line == expected


def test_the_options_of_kscope_run_are_passed_on_without_those_of_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "mine")
    typed = ["run", "-o", "a.%r.kscope", "-qm", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
    found = launched.environment(typed, typed[5:])
    assert json.loads(found[launched.FLAGS]) == ["run", "-o", "a.%r.kscope"]
    assert found["PYTHONPATH"].endswith(f"{os.pathsep}mine")
