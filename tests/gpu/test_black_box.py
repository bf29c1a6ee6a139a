"""Seeded faults on the device: the culprit's role, region, value and block are named, at once and afterwards.

Each fault is a process of bench/faults_program.py; bench/faults.py runs more of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import wait_until

import kscope
from kscope.marks.operations import barrier

from .checks import PATHS

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.append(str(BENCH))
from faults import Trial, explained, installed  # noqa: E402
from faults_program import FAULTS, LANGUAGES, SLOTS  # noqa: E402


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory: the driver takes no other files."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def environment(folder: Path) -> dict[str, str]:
    paths = os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "KSCOPE_SURVIVE_FOLDER": str(folder), "PYTHONPATH": paths}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_culprit_is_named_while_it_hangs_and_when_the_program_is_gone(language: str, fault: str) -> None:
    if language not in installed([language]):
        pytest.skip(f"needs {language}")
    seed = LANGUAGES.index(language) * len(FAULTS) + FAULTS.index(fault)
    assert explained(Trial(language, fault, seed, "shm")) == ""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_keeper_names_the_culprit_too(fault: str) -> None:
    assert explained(Trial("triton", fault, FAULTS.index(fault), "keeper")) == ""


def test_another_terminal_is_answered_while_all_blocks_hang(memory: Path, table: Callable[[str, str], None]) -> None:
    command = [sys.executable, str(BENCH / "faults_program.py"), "triton", "signal", "0"]
    watch = [sys.executable, "-m", "kscope", "watch", "--once", "--json"]
    with subprocess.Popen(command, env=environment(memory), stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None and program.stdout.readline() == "launched\n"
            time.sleep(1)
            began = time.monotonic()
            answer = subprocess.run([*watch, str(program.pid)], env=environment(memory), capture_output=True, text=True)
            took = time.monotonic() - began
        finally:
            program.kill()
    table("kscope watch, a new process's answer", f"{1e3 * took:.0f} ms")
    (found,) = map(json.loads, answer.stdout.splitlines())
    groups = [group for launch in found["launches"] for group in launch["groups"]]
    assert any((group["state"], group["region"]) == ("in", "wait_full") for group in groups), groups


def test_a_barrier_that_nobody_marked_is_named(memory: Path, tmp_path: Path) -> None:
    flags = ["--survive", "shm", "--kinds", "pipeline", "-o", str(tmp_path / "run.kscope")]
    program = [str(Path(__file__).with_name("core_kernels.py")), "cupy_barrier"]
    command = [sys.executable, "-m", "kscope", "run", *flags, *program]
    watch = [sys.executable, "-m", "kscope", "watch", "--once", "--json"]
    with subprocess.Popen(command, env=environment(memory), cwd=tmp_path) as running:
        try:
            wait_until(lambda: (tmp_path / "hangs").exists() or running.poll() is not None)
            time.sleep(1)
            env = environment(memory)
            answer = subprocess.run([*watch, str(running.pid)], env=env, capture_output=True, text=True, check=True)
        finally:
            running.kill()
    groups = [group for launch in json.loads(answer.stdout)["launches"] for group in launch["groups"]]
    waits = [
        group for group in groups if group["state"] == "in" and (group["region"] or "").startswith("pipeline wait")
    ]
    assert [group["blocks"] for group in waits] == ["5"], groups
    waits_for = barrier(int(waits[0]["values"][0]))
    assert waits_for.parity == 0 and waits_for.address % 8 == 0, waits_for


SMALL = """import os
real = os.statvfs
def statvfs(path):
    found = [*real(path)]
    found[3] = found[4] = 100
    return os.statvfs_result(found)
os.statvfs = statvfs
"""
ENDS = """import sys
sys.path.insert(0, {bench!r})
import faults_program
faults_program.on_triton(0, faults_program.place(0))
"""


def test_kernels_record_into_memory_that_kscope_run_holds(memory: Path, tmp_path: Path) -> None:
    """As where /dev/shm is small: the driver takes memory without a file, too."""
    (tmp_path / "sitecustomize.py").write_text(SMALL)
    (tmp_path / "ends.py").write_text(ENDS.format(bench=str(BENCH)))
    paths = f"{tmp_path}{os.pathsep}{environment(memory)['PYTHONPATH']}"
    command = [sys.executable, "-m", "kscope", "run", "--survive", "shm", "-o", str(tmp_path / "run.kscope")]
    subprocess.run([*command, str(tmp_path / "ends.py")], env={**environment(memory), "PYTHONPATH": paths}, check=True)
    trace = kscope.load(tmp_path / "run.kscope")
    assert "kscope run holds the memory" in trace.recorded.host["survive"]["gpu0"]
    assert trace.filter(region="multiply").summary().regions[0].count == 32 * SLOTS * 4
    assert list(memory.iterdir()) == []


def test_another_process_reads_a_program_that_ends_normally_and_its_file_is_gone(memory: Path) -> None:
    source = "import kscope, torch\ntorch.zeros(1, device='cuda')\nwith kscope.profile(survive='shm'): pass\n"
    subprocess.run([sys.executable, "-c", source], env=environment(memory), check=True)
    assert list(memory.iterdir()) == []
