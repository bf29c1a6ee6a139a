"""Seeded faults on the device: kscope watch names the culprit's region, value and block, at once and afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kscope

from .black_box_program import FAULTS, HANGS, LANGUAGES

PROGRAM = Path(__file__).with_name("black_box_program.py")
EXPECTED: dict[str, tuple[str, float, int | None]] = {
    "arrive": ("wait_empty", 29, 0), "signal": ("wait_full", 28, None), "kill": ("wait_full", 28, None),
    "crash": ("wait_full", 28, None), "trap": ("check", 22, 22), "address": ("poke", 22, 22),
}  # fmt: skip
"""Where the culprit, or everybody, stands: region, value, and block of the culprit."""


def watch(*arguments: str, folder: Path) -> tuple[list[Any], float]:
    """The verdicts of `kscope watch --once --json`, and how long it took, in seconds."""
    began = time.monotonic()
    command = [sys.executable, "-m", "kscope", "watch", "--once", "--json", *arguments]
    found = subprocess.run(command, capture_output=True, text=True, env=environment(folder), check=False)
    return [json.loads(line) for line in found.stdout.splitlines()], time.monotonic() - began


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "KSCOPE_SURVIVE_FOLDER": str(folder)}


def states(found: list[Any]) -> dict[tuple[str, str | None], Any]:
    return {(g["state"], g["region"]): g for one in found for launch in one["launches"] for g in launch["groups"]}


def explained(language: str, fault: str, folder: Path, survive: str = "shm") -> list[str]:
    """Run the program, look while it hangs and when it is gone. Returns what was wrong, or nothing."""
    folder.mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, str(PROGRAM), language, fault, survive]
    with subprocess.Popen(
        command, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        return _wrong(program, language, fault, folder)


def _wrong(program: subprocess.Popen[str], language: str, fault: str, folder: Path) -> list[str]:
    wrong = list[str]()
    region, value, block = EXPECTED[fault]
    if language == "numba" and fault == "trap":
        region = "poke"
    assert program.stdout is not None and program.stderr is not None
    if "launched" not in program.stdout.readline():
        program.kill()
        return [f"it did not launch: {program.communicate()[1][-1500:]}"]
    time.sleep(1.5)
    looks = []
    if fault in HANGS:
        found, _ = watch(str(program.pid), folder=folder)
        looks.append(("while it hangs", found))
        if fault in ("arrive", "signal"):
            program.kill()
    try:
        program.wait(30)
    except subprocess.TimeoutExpired:
        wrong.append("it did not end")
        program.kill()
        program.wait()
    files = sorted(map(str, folder.glob("*.pool")))
    if not files:
        return [*wrong, f"no file is left: {program.stderr.read()[-1500:]}"]
    found, _ = watch(files[-1], folder=folder)
    looks.append(("afterwards", found))
    for when, verdicts in looks:
        group = states(verdicts).get(("in", region))
        if group is None:
            wrong.append(f"{when}: nobody is in {region}: {sorted(states(verdicts), key=str)}")
        elif group["values"] != [value, value] or (block is not None and group["blocks"] != str(block)):
            wrong.append(f"{when}: {group}")
    if any(one["running"] for one in looks[-1][1]):
        wrong.append("a dead process is said to run")
    wrong += [f"no launch of the host: {one['host_launches']}" for one in looks[-1][1]
              if language != "cuda" and not one["host_launches"]]  # fmt: skip
    return wrong


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory: the driver takes no other files."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_culprit_is_named_while_it_hangs_and_when_the_program_is_gone(
    language: str, fault: str, memory: Path
) -> None:
    pytest.importorskip({"cuda": "cuda.core", "numba": "numba.cuda"}.get(language, language))
    assert explained(language, fault, memory) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_keeper_tells_the_same(fault: str, memory: Path) -> None:
    assert explained("triton", fault, memory, "keeper") == []


SMALL = """import os
real = os.statvfs
def statvfs(path):
    found = [*real(path)]
    found[3] = found[4] = 100
    return os.statvfs_result(found)
os.statvfs = statvfs
"""
ENDS = """import sys
sys.path.insert(0, {folder!r})
import black_box_triton, torch
flags, done, out = (torch.zeros(size, device="cuda", dtype=torch.int32) for size in (32, 32, 64 * 128))
black_box_triton.pipeline[(64,)](flags, done, out, 0, 64, num_warps=4)
torch.cuda.synchronize()
"""


def test_kernels_record_into_memory_that_kscope_run_holds(memory: Path, tmp_path: Path) -> None:
    """As where /dev/shm is small: the driver takes memory without a file, too."""
    (tmp_path / "sitecustomize.py").write_text(SMALL)
    (tmp_path / "ends.py").write_text(ENDS.format(folder=str(PROGRAM.parent)))
    paths = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    command = [sys.executable, "-m", "kscope", "run", "--survive", "shm", "-o", str(tmp_path / "run.kscope")]
    subprocess.run([*command, str(tmp_path / "ends.py")], env={**environment(memory), "PYTHONPATH": paths}, check=True)
    trace = kscope.load(tmp_path / "run.kscope")
    assert "kscope run holds the memory" in trace.recorded.host["survive"]["gpu0"]
    assert trace.filter(region="multiply").summary().regions[0].count == 63 * 32 * 4
    assert list(memory.iterdir()) == []


def test_another_process_reads_a_program_that_ends_normally_and_its_file_is_gone(memory: Path) -> None:
    source = "import kscope, torch\ntorch.zeros(1, device='cuda')\nwith kscope.profile(survive='shm'): pass\n"
    subprocess.run([sys.executable, "-c", source], env=environment(memory), check=True)
    assert list(memory.iterdir()) == []
