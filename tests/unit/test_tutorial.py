"""The tutorial: every command on the page runs unchanged, and prints what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import newcomer
import numpy as np
import pytest

import kscope
from kscope import cli

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial"
PAGE = (TUTORIAL / "README.md").read_text()
PATHS = [str(ROOT / folder) for folder in (".", "frontends", "runtime")]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One in which `kscope` is this checkout's."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "kscope").write_text(f'#!/bin/sh\nexec {sys.executable} -m kscope "$@"\n')
    (folder / "kscope").chmod(0o755)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    wide = {"COLUMNS": "110"}  # as docs/pictures.py prints them
    return {
        **os.environ,
        **wide,
        "PATH": path,
        "PYTHONPATH": os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")]),
    }


@pytest.fixture(scope="module")
def printed(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return newcomer.follow(tmp_path_factory.mktemp("tutorial"), environment)


def test_every_command_of_the_tutorial_runs_unchanged(printed: dict[str, str]) -> None:
    assert {"run", "summary", "view", "export", "occupancy", "compare", "assert"} == {
        command.split()[1] for command in printed
    }
    assert all(command.startswith("kscope ") for command in printed)


def test_the_page_shows_what_the_commands_print(printed: dict[str, str]) -> None:
    (compared,) = (text for command, text in printed.items() if command.startswith("kscope compare"))
    kernel = re.search(r"^  \(kernel\) .*faster$", compared, re.M)
    assert kernel is not None
    assert kernel[0] in PAGE
    (occupied,) = (text for command, text in printed.items() if command.startswith("kscope occupancy"))
    assert occupied.splitlines()[2] in PAGE


def test_the_fixed_kernel_has_a_shorter_tail_and_the_same_regions() -> None:
    slow, fast = (kscope.load(TUTORIAL / f"{name}.kscope") for name in ("slow", "fast"))
    assert len(slow) == len(fast)
    assert {problem.kind for trace in (slow, fast) for problem in trace.problems} <= {"clock"}
    times = [trace.summary().warps[0].time_ns for trace in (slow, fast)]
    assert times[1] < 0.9 * times[0]
    for name in ("qk", "softmax", "load_k"):
        means = [float(np.mean(trace.filter(region=name).dur_ns)) for trace in (slow, fast)]
        assert means[1] == pytest.approx(means[0], rel=0.1)


def test_the_gate_lets_only_the_fixed_kernel_pass(environment: dict[str, str]) -> None:
    (gate,) = (line for line in newcomer.commands(PAGE) if line.startswith("kscope assert"))
    codes = [
        subprocess.run(
            ["bash", "-c", command], cwd=TUTORIAL, env=environment, capture_output=True, check=False
        ).returncode
        for command in (gate, gate.replace("fast.kscope", "slow.kscope"))
    ]
    assert codes == [0, 1]


def test_the_captures_name_no_machine_and_no_folder() -> None:
    for name in ("slow", "fast"):
        capture = kscope.load_capture(TUTORIAL / f"{name}.kscope")
        assert not {"hostname", "pid", "command"} & capture.host.keys()
        places = [region.where or "" for module in capture.modules for region in module.regions]
        assert places and all(re.fullmatch(r"\w+\.py:\d+", place) for place in places)


def test_the_model_takes_the_times_of_the_kernel() -> None:
    sys.path.insert(0, str(TUTORIAL))
    try:
        from model import CYCLES  # type: ignore[import-not-found]  # a script of the tutorial, found by path
    finally:
        sys.path.remove(str(TUTORIAL))
    recorded = kscope.load(ROOT / "tests" / "golden" / "attention.kscope").filter(warp=0)
    for name, (low, high) in CYCLES.items():
        found = np.percentile(recorded.filter(region=name).dur_cycles, [10, 90])
        assert (low, high) == pytest.approx(found, abs=1)


RECORDED = sorted(
    line
    for page in (ROOT / "docs" / "howto").glob("*.md")
    for line in newcomer.commands(page.read_text())
    if "tests/golden/" in line
)


@pytest.mark.parametrize("command", RECORDED)
def test_commands_of_the_howtos_run_on_the_recorded_captures(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    assert cli.main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out or list(tmp_path.glob("*.pftrace"))


def test_the_howto_of_pipelines_reads_its_capture_right() -> None:
    """The producer waits for room for 60 % of its life."""
    page = (ROOT / "docs" / "howto" / "warp-specialized.md").read_text()
    part = re.search(r"`wait_empty` for (\d+) %", page)
    assert part is not None
    trace = kscope.load(ROOT / "tests" / "golden" / "warp_specialized.kscope")
    waits = trace.filter(region="wait_empty")
    mine = np.isin(trace.warps.warp, np.unique(waits.warp))
    life = float(np.sum((trace.warps.end_ns - trace.warps.start_ns)[mine]))
    assert round(100 * float(waits.dur_ns.sum()) / life) == int(part[1])


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("heavy_first", [False, True])
def test_the_kernel_compiles_with_every_region(heavy_first: bool, environment: dict[str, str], tmp_path: Path) -> None:
    program = f"""
import sys; sys.path.insert(0, {str(TUTORIAL)!r})
import attention, kscope, triton
from kernel import attention as kernel
from triton.backends.compiler import GPUTarget
types = dict.fromkeys(("q", "k", "v", "out"), "*fp16") | {{"S": "i32", "scale": "fp32"}}
types |= dict.fromkeys([*attention.TILE, "HEAVY_FIRST"], "constexpr")
aligned = {{(i,): [["tt.divisibility", 16]] for i in range(5)}}
kscope.enable(strategy=kscope.Lane0Warp0())
source = triton.compiler.ASTSource(kernel, types, {{**attention.TILE, "HEAVY_FIRST": {heavy_first}}}, aligned)
made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=attention.OPTIONS)
names = [b"load_q", b"load_k", b"qk", b"softmax", b"pv", b"store"]
assert all(name in made.asm["cubin"] for name in names)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
