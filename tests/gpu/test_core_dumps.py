"""kscope run --core on the device: the driver's dump names the source line of every warp, and regions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clocks import CLOCK
from waiting import wait_until

from kscope.core_dumps.verdict import LaunchState, verdict

PROGRAM = Path(__file__).with_name("core_kernels.py")
Table = Callable[[str, str], None]


def line(text: str) -> int:
    return next(number for number, one in enumerate(PROGRAM.read_text().splitlines(), 1) if f"# {text}" in one)


def started(what: str, folder: Path, *flags: str) -> subprocess.Popen[bytes]:
    """kscope run --core; its messages are in messages.txt."""
    run = ["-c", CLOCK, "run"] if "--timeout" in flags else ["-m", "kscope", "run"]
    command = [sys.executable, *run, "--core", *flags, str(PROGRAM), what]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (folder / "messages.txt").open("wb") as messages:
        return subprocess.Popen(command, cwd=folder, env=env, stderr=messages)


def messages(folder: Path) -> str:
    return (folder / "messages.txt").read_text()


def dumped(what: str, folder: Path, table: Table | None = None) -> dict[str, Any]:
    """The output of kscope watch --core for a kernel that hangs."""
    program = started(what, folder)
    try:
        wait_until(lambda: (folder / "hangs").exists() or program.poll() is not None)
        assert program.poll() is None, messages(folder)
        time.sleep(0.5)
        began = time.monotonic()
        command = [sys.executable, "-m", "kscope", "watch", "--core", "--json", str(program.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        took = time.monotonic() - began
        assert done.returncode == 0, done.stderr
        program.wait(60)
    finally:
        program.kill()
    assert program.returncode == 128 + 6 and "ends it" in done.stderr, messages(folder)
    (file,) = folder.glob("*.core")
    if table is not None:
        table(f"core dump, {what}", f"{took:.2f} s, {file.stat().st_size / 1e6:.1f} MB")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def the_launch(answer: dict[str, Any], kernel: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [one for one in answer["launches"] if one["kernel"] == kernel]
    assert len(found) == 1, answer
    return found[0]


def test_a_triton_kernel_without_marks_has_every_warp_at_its_line(tmp_path: Path, table: Table) -> None:
    launch = the_launch(dumped("plain", tmp_path, table), "plain")
    assert (launch["blocks"], launch["running"], launch["warps"]) == (64, 1, 4)
    places = {(group["where"], group["blocks"]) for group in launch["groups"]}
    assert places == {(f"{PROGRAM}:{line('triton waits here')}", "5")}, launch


def test_a_cuda_kernel_without_marks_has_every_warp_at_its_line(tmp_path: Path, table: Table) -> None:
    launch = the_launch(dumped("cupy_plain", tmp_path, table), "waits")
    assert (launch["running"], launch["warps"]) == (1, 4)
    lines = {group["where"].rpartition(":")[2] for group in launch["groups"]}
    assert lines == {"5"} and {group["blocks"] for group in launch["groups"]} == {"5"}, launch


@pytest.mark.parametrize(("what", "kernel"), [("marked", "marked"), ("cupy_marked", "waits")])
def test_warps_in_marked_code_have_their_region(what: str, kernel: str, tmp_path: Path) -> None:
    launch = the_launch(dumped(what, tmp_path), kernel)
    assert {group["region"] for group in launch["groups"]} == {"wait_full"}, launch


def test_warps_of_all_sms_are_dumped(tmp_path: Path, table: Table) -> None:
    """Four blocks of 16 warps an SM: a million sections, or so."""
    launch = the_launch(dumped("fills", tmp_path, table), "fills")
    assert launch["running"] == launch["blocks"] and launch["warps"] == 16 * launch["blocks"]
    assert {group["where"] for group in launch["groups"]} == {f"{PROGRAM}:{line('all blocks wait here')}"}


def test_a_kernel_that_fails_is_dumped_where_it_failed(tmp_path: Path) -> None:
    started("fails", tmp_path).wait(300)
    (file,) = tmp_path.glob("*.core")
    found = verdict(file)
    failed: list[LaunchState] = [one for one in found.launches if any(group.exception for group in one.groups)]
    assert failed or any("illegal address" in problem for problem in found.problems), messages(tmp_path)
    assert f":{line('triton fails here')}" in messages(tmp_path)


def test_the_time_out_dumps(tmp_path: Path) -> None:
    assert started("plain", tmp_path, "--timeout", "1m").wait(300) == 124, messages(tmp_path)
    assert f"warps 0-3 of block 5 were at {PROGRAM}:{line('triton waits here')}" in messages(tmp_path)
