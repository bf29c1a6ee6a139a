"""Where a session's capture is saved, also after a failing body."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from noted import NotedBackend, launch

import kscope
from kscope.capture.capture_data import DeviceCapture
from kscope.capture.model import Problem
from kscope.errors import DriverError, UsageError
from kscope.session import session, states

# target paths


def fail_in(prof: session.Session) -> None:
    with prof:
        launch()
        launch()
        _ = 1 / 0


def leave_in(prof: session.Session) -> None:
    with prof:
        launch()
        sys.exit(0)


def test_a_path_gets_the_capture(tmp_path: Path) -> None:
    with kscope.profile(tmp_path / "run.kscope"):
        launch()
    assert len(kscope.load(tmp_path / "run.kscope")) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run.kscope"]


def test_a_failing_body_does_not_overwrite_the_last_good_capture(tmp_path: Path) -> None:
    with kscope.profile(tmp_path / "run.kscope"):
        launch()
    good = (tmp_path / "run.kscope").read_bytes()
    with pytest.raises(ZeroDivisionError) as error:
        fail_in(prof := kscope.profile(tmp_path / "run.kscope"))
    assert (tmp_path / "run.kscope").read_bytes() == good
    assert len(kscope.load(tmp_path / "run.failed.kscope")) == 4 == len(prof.trace)
    if sys.version_info >= (3, 11):
        assert "run.failed.kscope" in error.value.__notes__[0]


def test_a_device_failure_does_not_overwrite_the_last_good_capture(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.kscope").write_text("the last good one")
    monkeypatch.setattr(NotedBackend, "broken", (Problem("driver", "device 0: it trapped"),))
    with pytest.warns(RuntimeWarning, match="it trapped; saved as .*failed"), kscope.profile(tmp_path / "run.kscope"):
        pass
    assert (tmp_path / "run.kscope").read_text() == "the last good one"
    assert (tmp_path / "run.failed.kscope").exists()


FULL = """
import resource, signal, sys
import kscope, noted

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with kscope.profile(sys.argv[1]):
    noted.launch()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    {ends}
"""


@pytest.mark.parametrize(("ends", "code"), [("raise ValueError('mine')", 1), ("sys.exit(7)", 7), ("pass", 1)])
def test_a_full_disk_is_reported_and_preserves_the_programs_error_and_exit_code(
    tmp_path: Path, ends: str, code: int
) -> None:
    command = [sys.executable, "-c", FULL.format(ends=ends), str(tmp_path / "run.kscope")]
    paths = os.pathsep.join(sys.path)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths})
    name = "run.kscope" if ends == "pass" else "run.failed.kscope"
    assert done.returncode == code and f"File too large: '{tmp_path / name}'" in done.stderr
    assert ("ValueError: mine" in done.stderr) == ("mine" in ends)
    assert ("OSError: " in done.stderr) == (ends == "pass")
    assert list(tmp_path.iterdir()) == []


def test_exit_code_0_counts_as_success(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        leave_in(kscope.profile(tmp_path / "run.kscope"))
    assert (tmp_path / "run.kscope").exists()


def test_ctrl_c_does_not_wait_for_kernels(log: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt), kscope.profile():
        raise KeyboardInterrupt
    assert "collect False" in log and "collect True" not in log


def test_ctrl_c_in_the_wait_at_the_end_ends_the_program_and_leaves_the_last_good_capture(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.kscope").write_text("the last good one")
    monkeypatch.setattr(NotedBackend, "impatient", True)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore SIGINT
    with pytest.raises(KeyboardInterrupt), kscope.profile(tmp_path / "run.kscope") as prof:
        log.append("body")
    assert log[log.index("body") :] == ["body", "wait", "disarm", "collect False", "disarm", "disable"]
    signal.signal(signal.SIGINT, before)
    assert (tmp_path / "run.kscope").read_text() == "the last good one"
    assert prof.saved == tmp_path / "run.failed.kscope" and prof.saved.exists()


AT_EXIT = """
import atexit, sys
import kscope, kscope_sim

def work(warp):
    with kscope.region("work"):
        warp.work(100)

def leave():
    prof.__exit__(None, None, None)
    prof.trace.export(sys.argv[1] + ".json.gz")
    print(len(prof.trace.summary().regions))

prof = kscope.profile(sys.argv[1])
prof.__enter__()
atexit.register(leave)
kscope_sim.launch(work, grid=100)
"""


def test_a_session_that_atexit_ends_is_saved(tmp_path: Path) -> None:
    """No thread begins then."""
    command = [sys.executable, "-c", AT_EXIT, str(tmp_path / "run.kscope")]
    paths = os.pathsep.join(sys.path)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths})
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert len(kscope.load(tmp_path / "run.kscope")) == 100
    with gzip.open(tmp_path / "run.kscope.json.gz") as file:
        assert len(json.load(file)["traceEvents"]) >= 100


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("run.pftrace", "ends in .kscope"),
        ("none/run.kscope", "does not exist: mkdir -p"),
        ("folder.kscope", "is a folder"),
        ("/proc/run.kscope", "cannot write to"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "folder.kscope").mkdir()
    with pytest.raises(UsageError, match=message):
        kscope.profile(tmp_path / path)


def test_an_error_at_the_end_leaves_the_process_plain(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: NotedBackend, *, wait: bool) -> list[DeviceCapture]:
        raise DriverError("cuCtxSynchronize", "CUDA_ERROR_UNKNOWN", 999)

    monkeypatch.setattr(NotedBackend, "collect", fail)
    with pytest.raises(DriverError), kscope.profile():
        pass
    assert log[-1] == "disable" and states.STATE.active is None
