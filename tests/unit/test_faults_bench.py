"""bench/faults.py: what it counts as explained, and its kernels, as far as they run without a GPU."""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvcc import MARKS, compiled, needs_nvcc
from ptxvm.host import Host, Pool, Ring
from ptxvm.machine import Grid, Launch
from ptxvm.machine import run as run_threads
from ptxvm.memory import FaultError

from kscope.capture.pools.pool_reading import HostLaunch
from kscope.instrument.recording import Recording
from kscope.lowering.plan import lower
from kscope.watching.verdict import Group, LaunchState, Verdict

BENCH = Path(__file__).resolve().parents[2] / "bench"
FAULTS = ("arrive", "signal", "kill", "crash", "memory", "trap", "address")


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    import faults

    return faults


@pytest.mark.parametrize(
    "fault",
    [pytest.param(one, marks=[pytest.mark.variation] if one not in ("arrive", "memory") else []) for one in FAULTS],
)
def test_the_simulators_faults_are_explained(fault: str) -> None:
    command = [sys.executable, str(BENCH / "faults.py"), "--simulator", "--trials", "1", "--faults", fault]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"simulator  {fault:<8} 1 of 1" in done.stdout


def test_a_language_may_have_an_interpreter_of_another_environment(faults: Any, tmp_path: Path) -> None:
    other, used = tmp_path / "python", tmp_path / "used"
    other.write_text(f'#!/bin/sh\necho "$2" > {used}\nexec {sys.executable} "$@"\n')
    other.chmod(0o700)
    assert faults.interpreter(f"cute={other}") == ("cute", str(other))
    assert faults.explained(faults.Trial("simulator", "kill", 3, "shm", str(other))) == ""
    assert used.read_text() == "simulator\n"
    for wrong in (str(other), f"none={other}", "cute=", f"cute={other}s"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected LANGUAGE=PATH"):
            faults.interpreter(wrong)


def found(group: Group, *, running: bool = False, stack: tuple[tuple[str, int, str], ...] = (("a.py", 1, "f"),)) -> Any:
    launch = LaunchState("pipeline", 1, 64, 64, True, 4, 0, (group,))
    host = (("pipeline", HostLaunch(0, 1, 0, stack)),)
    return Verdict("a.pool", 1, (), running, False, "a device 0", None, None, (launch,), host)


def test_only_the_right_place_counts(faults: Any) -> None:
    trial = faults.Trial("cupy", "trap", 7, "shm")
    at = trial.place
    value = float(at.slot)
    group = Group("in", "check", None, "consumer", str(at.warp), str(at.block), 1, 1, (value, value), "3", None)
    assert faults.wrong(trial, found(group), gone=True) == ""
    others = {
        "state": "behind", "region": "multiply", "role": "producer", "warps": str(at.warp + 1),
        "blocks": str(at.block + 2), "values": (value + 1, value + 1),
    }  # fmt: skip
    for name, value_ in others.items():
        assert "not among" in faults.wrong(trial, found(replace(group, **{name: value_})), gone=True), name
    assert "seems to run" in faults.wrong(trial, found(group, running=True), gone=True)
    assert "no launch of the host" in faults.wrong(trial, found(group, stack=()), gone=True)


def test_seeds_draw_different_places(faults: Any) -> None:
    places = {faults.place(seed) for seed in range(40)}
    assert len(places) > 30
    assert all(one.block % 2 == 1 and 1 <= one.warp <= 3 for one in places)


def test_what_was_not_explained_is_counted_and_printed(faults: Any, capsys: pytest.CaptureFixture[str]) -> None:
    trials = [faults.Trial("cupy", "trap", seed, "shm") for seed in range(3)]
    assert faults.report(dict(zip(trials, ("", "nobody is there", None), strict=True)), [0.3, 0.1, 0.2], None) == 1
    shown = capsys.readouterr().out
    assert "cupy       trap     1 of 2" in shown and "1 not run" in shown
    assert "answered within 200 ms (median), 300 ms (worst) of 3" in shown
    assert "! cupy trap, seed 1: nobody is there" in shown
    assert faults.report({trials[0]: ""}, [], None) == 0


@cache
def text() -> str:
    sys.path.insert(0, str(BENCH))
    try:
        from faults_program import SOURCE
    finally:
        sys.path.remove(str(BENCH))
    return lower(compiled(SOURCE, MARKS).decode(), Recording(survive="shm"), frontend="test").text


def taken(mode: int) -> list[int]:
    """How many warps have taken each slot of one block, when the kernel has ended or trapped."""
    host = Host(Pool((Ring(12), Ring(12))), survive=True)
    flags, done, out = (host.memory.allocate(name, 1 << 13) for name in ("flags", "done", "out"))
    arguments = [flags.base, done.base, out.base, mode, 0, 7, 2]
    launch = Launch(host.load(text()), host.memory, "pipeline", Grid((1, 1, 1), (128, 1, 1)), arguments, [(0, 0, 0)])
    try:
        run_threads(launch.start(), "random", 1)
    finally:
        counts: list[int] = np.frombuffer(bytes(done.data[:128]), np.int32).tolist()
    return counts


@needs_nvcc
def test_the_kernel_ends_without_a_fault_and_traps_with_one() -> None:
    assert taken(0) == [3] * 32
    with pytest.raises(FaultError, match="trap"):
        taken(3)
