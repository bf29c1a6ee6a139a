"""pytest --kscope-timeout: a hung test ends with where its warps were."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE_S

from kscope.capture.pools import pool_folder

TESTS = """
import threading
import kscope
import kscope_sim

waiting = []

class Timer(threading.Timer):
    "Time passes once both warps wait."
    def run(self):
        while not self.finished.wait(0.01):
            if len(waiting) == 2:
                self.function(*self.args)

threading.Timer = Timer

def waits(warp):
    with kscope.region("wait_full", value=7):
        waiting.append(warp.index)
        warp.wait("never", 1)

def test_fine():
    assert True

def test_hangs():
    SESSION
        kscope_sim.launch(waits, block=64, hangs=True)
"""


def pytest_of(tmp_path: Path, session: str, *flags: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_it.py").write_text(TESTS.replace("SESSION", session))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:kscope",  # the installed one, if there is one
        "-p",
        "kscope.pytest_plugin",
        "-q",
        "test_it.py",
    ]
    environment = {**os.environ, pool_folder.VARIABLE: str(tmp_path / "pools")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*sys.path]))
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(
        [*command, *flags],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("session", "flags"), [("with kscope.profile():", []), ("if True:", ["--kscope-record"])], ids=["own", "recorded"]
)
def test_a_hung_test_ends_with_where_its_warps_were(session: str, flags: list[str], tmp_path: Path) -> None:
    found = pytest_of(tmp_path, session, "--kscope-timeout", "2", *flags)
    assert found.returncode == 124, found.stdout + found.stderr
    assert "test_hangs has run for 2 s" in found.stderr
    assert "warps 0-1 of block 0 are in `wait_full` (value 7)" in found.stderr
    assert "test_it.py" in found.stderr and "kscope summary" in found.stderr
    assert any((tmp_path / "pools").glob("*.pool")), "the file stays"


def test_a_hung_test_that_records_nothing_says_what_to_do(tmp_path: Path) -> None:
    found = pytest_of(tmp_path, "if True:", "--kscope-timeout", "1")
    assert found.returncode == 124 and "--kscope-record" in found.stderr


def test_without_the_option_the_plugin_does_nothing(tmp_path: Path) -> None:
    found = pytest_of(tmp_path, "if False:", "-k", "fine")
    assert found.returncode == 0 and not (tmp_path / "pools").exists()
