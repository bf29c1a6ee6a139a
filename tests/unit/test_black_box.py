"""A program whose kernel hangs or dies leaves its pool, and kscope tells from it where every warp was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clocks import CLOCK
from waiting import PATIENCE_S, wait_until

import kscope
import kscope_sim
from kscope import native
from kscope.capture.pools import pool_folder
from kscope.capture.pools.pool_reading import open_pool
from kscope.cli import main
from kscope.watching import text
from kscope.watching.observing import Observer
from kscope.watching.verdict import Group, Verdict, verdict

PROGRAM = Path(__file__).with_name("black_box_program.py")
IN_FULL = ("consumer", "in", "wait_full", (7, 7), "1-3")
WAITS_FOR_ROOM = ("producer", "in", "wait_empty", (10, 10), "0")
CULPRIT = ("consumer", "in", "multiply", (7, 7), "2")
OTHERS = {("consumer", "in", "wait_full", (8, 8), "1"), ("consumer", "in", "wait_full", (7, 7), "3")}
EXPECTED: dict[str, tuple[int, set[tuple[Any, ...]]]] = {
    # exit code, and the groups of warps: role, state, region, values, warps
    "arrive": (128 + signal.SIGTERM, {WAITS_FOR_ROOM, ("consumer", "in", "wait_full", (10, 10), "1-3")}),
    "signal": (128 + signal.SIGTERM, {WAITS_FOR_ROOM, IN_FULL}),
    "kill": (137, {WAITS_FOR_ROOM, IN_FULL}),
    "crash": (139, {WAITS_FOR_ROOM, IN_FULL}),
    "python": (1, {WAITS_FOR_ROOM, IN_FULL}),
    "trap": (1, {WAITS_FOR_ROOM, CULPRIT, *OTHERS}),
    "address": (1, {WAITS_FOR_ROOM, CULPRIT, *OTHERS}),
}


@pytest.fixture
def pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pools"
    monkeypatch.setenv(pool_folder.VARIABLE, str(folder))
    return folder


def start(fault: str, folder: Path, *flags: str) -> subprocess.Popen[str]:
    kscope_run = ["-c", CLOCK, "run"] if "--timeout" in flags else ["-m", "kscope", "run"]
    command = [sys.executable, *kscope_run, *flags, "-o", str(folder / "run.kscope"), str(PROGRAM), fault]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=env, **pipes)


def groups(path: Path) -> set[tuple[Any, ...]]:
    found = verdict(open_pool(path))
    assert [launch.number for launch in found.launches] == [2]
    return groups_of(found)


def groups_of(found: Verdict) -> set[tuple[Any, ...]]:
    each = [group for launch in found.launches for group in launch.groups]
    return {(one.role, one.state, one.region, one.values, one.warps) for one in each}


@pytest.mark.parametrize("fault", EXPECTED)
def test_where_every_warp_was_is_printed_and_kept(fault: str, pools: Path, tmp_path: Path) -> None:
    code, expected = EXPECTED[fault]
    program = start(fault, tmp_path, "--survive", "shm")
    if code == 128 + signal.SIGTERM:  # it hangs for ever
        wait_until(lambda: any(groups_of(verdict(pool)) == expected for pool in pool_folder.pools()))
        program.send_signal(signal.SIGTERM)
    errors = program.communicate(timeout=PATIENCE_S)[1]
    assert program.returncode == code, errors
    (file,) = pools.iterdir()
    assert groups(file) == expected
    for role, _, region, values, _ in expected:
        assert any(role in line and f"`{region}` (value {values[0]})" in line for line in errors.splitlines()), errors
    assert f"{PROGRAM.name}:" in errors and "in train" in errors, "the host's last launch, with its stack"
    assert f"kscope summary {file}" in errors


def test_a_program_that_takes_too_long_is_ended(pools: Path, tmp_path: Path) -> None:
    program = start("signal", tmp_path, "--timeout", "3s")
    errors = program.communicate(timeout=PATIENCE_S)[1]
    assert program.returncode == 124, errors
    assert "timeout: the program has run for 3s; ending it" in errors


def test_the_file_is_a_capture_of_everything_up_to_the_end(
    pools: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start("kill", tmp_path, "--survive", "shm").communicate(timeout=PATIENCE_S)
    (file,) = pools.iterdir()
    trace = kscope.load(file)
    counts = {row.region: row.count for row in trace.summary().regions}
    assert counts["load"] == 2 * 12 + 10, "two blocks that ended, and what the third one had loaded"
    assert any(problem.kind == "unclosed" and "gone" in problem.text for problem in trace.problems)
    assert main(["summary", str(file)]) == 0
    assert main(["export", str(file), "-o", str(tmp_path / "run.pftrace")]) == 0
    assert "wait_full" in capsys.readouterr().out


def test_a_running_program_is_watched_from_another_process(
    pools: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = start("signal", tmp_path, "--survive", "shm")
    try:
        wait_until(lambda: any(IN_FULL in groups_of(verdict(pool)) for pool in pool_folder.pools()))

        def seen() -> bool:
            assert main(["watch", str(program.pid), "--once"]) == 0, "the number of kscope run itself"
            return "consumer warps 1-3 of block 0 are in `wait_full` (value 7)" in capsys.readouterr().out

        wait_until(seen)
        assert main(["watch", "--once", "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["schema"] == "kscope.watch" and answer["running"] and answer["launches"][0]["unfinished"] == 4
        assert main(["watch", "--list"]) == 0
        assert "recording" in capsys.readouterr().out
    finally:
        program.send_signal(signal.SIGTERM)
        program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 128 + signal.SIGTERM
    assert main(["watch"]) == 0, "of a program that is gone, watch tells once, and ends"
    assert "is gone, without ending its session" in capsys.readouterr().out
    assert main(["watch", "--clean"]) == 0
    assert not any(pools.iterdir())


def scattered(warp: kscope_sim.Warp) -> None:
    """Each warp of a block stays elsewhere."""
    if warp.index == 1:
        warp.wait("never", 1)
    with kscope.region("load", value=warp.index):
        warp.work(10)
    if warp.index == 0:
        warp.wait("never", 1)
    elif warp.index == 3:
        with kscope.region("multiply", value=2.5):
            warp.work(1000)
            raise ZeroDivisionError


def test_each_state_has_its_words(pools: Path) -> None:
    with pytest.raises(ZeroDivisionError), kscope.profile(survive="shm"):
        kscope_sim.launch(scattered, grid=2, block=128)
    (file,) = pools.iterdir()
    found = "\n".join(text.lines(verdict(open_pool(file))))
    assert "scattered, launch 1: 1 of 2 blocks have begun; 3 warps of these have not finished, 1 has" in found
    assert "warp 0 of block 0 has left `load` (value 0) and has entered no waiting region since at " in found
    assert "warp 1 of block 0 has begun and recorded nothing yet" in found
    assert "warp 2 of block 0 has finished; the last region was `load` (value 2)" in found
    assert "warp 3 of block 0 is in `multiply` (value 2.5) at " in found


def test_a_wait_for_a_barrier_names_it() -> None:
    value = float(3 << 24 | 1 << 18 | 0x1A40)
    group = Group("in", "pipeline wait gemm.py:46", "gemm.py:46", None, "0", "7", 1, 1, (value, value), "2", None)
    said = "in `pipeline wait gemm.py:46` (barrier 0x1a40 of the cluster's block 3, parity 1) at gemm.py:46"
    assert said in text.sentence(group)
    assert "(values 0 to 64)" in text.sentence(replace(group, values=(0, 64)))


def test_two_looks_tell_progress(pools: Path) -> None:
    observer, rates = Observer(), list[float | None]()

    def look(warp: kscope_sim.Warp) -> None:
        (file,) = pools.iterdir()
        for _ in range(3):
            for _ in range(5):
                with kscope.region("step"):
                    warp.work(10)
            found = verdict(open_pool(file), observer)
            rates.append(found.enters_per_s)
            assert found.unchanged_s in (None, 0.0)

    with kscope.profile(survive="shm"):
        kscope_sim.launch(look)
    first, *more = rates
    assert first is None and all(rate is not None and rate > 0 for rate in more)


def test_a_program_that_ends_normally_leaves_no_file(pools: Path, tmp_path: Path) -> None:
    program = start("none", tmp_path, "--survive", "shm")
    (line,) = program.communicate(timeout=PATIENCE_S)[1].splitlines()
    assert "279 records" in line
    assert program.returncode == 0
    assert not any(pools.iterdir())
    assert len(kscope.load(tmp_path / "run.kscope")) > 0


def test_the_environment_makes_sessions_survive(
    pools: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KSCOPE_SURVIVE", "shm")
    with kscope.profile() as prof:
        kscope_sim.launch(lambda warp: None)
        (file,) = pools.iterdir()
        assert file.stat().st_mode & 0o777 == 0o600 and pools.stat().st_mode & 0o777 == 0o700
    assert prof.capture.options["survive"] == "shm"
    assert not any(pools.iterdir())
    monkeypatch.setenv("KSCOPE_SURVIVE", "disk")
    with pytest.raises(
        kscope.UsageError, match=r"KSCOPE_SURVIVE=disk: survive='disk': expected one of 'shm', 'keeper', 'auto'"
    ):
        kscope.profile()


def test_nothing_is_recorded_into_a_folder_that_others_may_enter(pools: Path) -> None:
    pools.mkdir(mode=0o755)
    with pytest.raises(kscope.UsageError, match="not a private folder of yours"), kscope.profile(survive="shm"):
        pass


def test_another_users_file_is_refused(pools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kscope.profile(survive="shm"):
        (file,) = pools.iterdir()
        me = os.geteuid()
        with monkeypatch.context() as other:
            other.setattr(os, "geteuid", lambda: me + 1)
            with pytest.raises(kscope.UsageError, match="another user"):
                open_pool(file)


def test_what_cannot_be_watched_is_an_error_that_says_what_to_do(
    pools: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, expected in (
        ([], "kscope run --survive shm"),
        (["1"], "kscope watch --list"),
        ([__file__], "not a pool file"),
        (["1", "--every", "soon"], "--every soon: expected seconds"),
    ):
        assert main(["watch", *arguments]) == 2
        assert expected in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["soon", "0s", "-1s", "5d"])
def test_a_timeout_that_is_no_time_is_refused(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"--timeout={typed}", str(PROGRAM), "none"]) == 2
    assert f"--timeout {typed}: expected a time" in capsys.readouterr().err


NOT_NEEDED = {
    "difflib", "hashlib", "orjson", "socket", "subprocess", "kscope.analysis", "kscope.capture.capture_data",
    "kscope.core_dumps", "kscope.machine_code", "kscope.marks.grammar", "kscope.report", "kscope.session",
    "kscope.trace",
}  # fmt: skip
"""Modules that take longer to load than the search."""
ANSWERS = r"""
import sys
from kscope.cli import main
code = main(["watch", "--once", sys.argv[1]])
print(*sys.modules, sep="\n", file=sys.stderr)
sys.exit(code)
"""


def test_the_command_that_looks_once_writes_all_of_its_answer_before_it_ends(pools: Path, tmp_path: Path) -> None:
    start("kill", tmp_path, "--survive", "shm").communicate(timeout=PATIENCE_S)
    (file,) = pools.iterdir()
    command = [sys.executable, "-m", "kscope", "watch", "--once"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*command, str(file)], env=env, capture_output=True, text=True, check=True)
    assert "in `wait_full` (value 7)" in done.stdout and done.stdout.endswith("\n\n") and not done.stderr
    failed = subprocess.run([*command, str(tmp_path)], env=env, capture_output=True, text=True, check=False)
    assert failed.returncode == 2 and failed.stderr.startswith("kscope: "), failed.stderr


def test_the_first_answer_waits_for_nothing_that_it_does_not_need(pools: Path, tmp_path: Path) -> None:
    start("kill", tmp_path, "--survive", "shm").communicate(timeout=PATIENCE_S)
    (file,) = pools.iterdir()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", ANSWERS, str(file)], env=env, capture_output=True, text=True, check=True
    )
    loaded = {*done.stderr.splitlines()}
    assert "in `wait_full` (value 7)" in done.stdout
    assert ("numpy" in loaded) != native.available(), "only where there are no compiled loops"
    numpy = "import sys, numpy; print(*sys.modules)" if "numpy" in loaded else ""  # 1.26 loads some of them
    own = subprocess.run([sys.executable, "-c", numpy], capture_output=True, text=True, check=True).stdout.split()
    assert not NOT_NEEDED & loaded - {*own}
