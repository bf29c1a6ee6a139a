"""kscope run --core and kscope watch --core PID, on a stand-in of the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from clocks import CLOCK
from core_files import one_warp
from waiting import PATIENCE_S, wait_until

from kscope.cli import main
from kscope.core_dumps import request
from kscope.errors import UsageError
from kscope_runtime.salvage import child_environment

PROGRAM = Path(__file__).with_name("core_dump_program.py")
SAID = "warp 3 of block 5 was at 0x0 of no module"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KSCOPE_SURVIVE_FOLDER", str(tmp_path / "pools"))
    return tmp_path


def started(folder: Path, *flags: str) -> subprocess.Popen[str]:
    run = ["-c", CLOCK, "run"] if "--timeout" in flags else ["-m", "kscope", "run"]
    dump = one_warp(folder / "of_driver")
    command = [sys.executable, *run, "--core", *flags, str(PROGRAM), str(dump)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)


def test_another_terminal_has_a_hanging_program_dumped(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = started(here)
    wait_until((here / "hangs").exists)
    assert main(["watch", "--core", str(program.pid)]) == 0, "the number of kscope run itself"
    said = capsys.readouterr()
    assert SAID in said.out and "which ends it" in said.err
    errors = program.communicate(timeout=PATIENCE_S)[1]
    assert program.returncode == 128 + 6, errors
    assert f"kscope watch --core {program.pid} shows where every warp is, and ends the program" in errors
    assert "ended by SIGABRT" in errors and SAID in errors
    (dump,) = here.glob(f"kscope-{program.pid}.*.core")
    assert f"the dump: kscope watch --core {dump}" in errors
    assert main(["watch", "--core", str(dump)]) == 0 and SAID in capsys.readouterr().out


def test_a_program_that_takes_too_long_is_dumped(here: Path) -> None:
    program = started(here, "--timeout", "3s")
    errors = program.communicate(timeout=PATIENCE_S)[1]
    assert program.returncode == 124, errors
    assert errors.index("has run for 3s") < errors.index(SAID)
    assert errors.count(SAID) == 1


def test_a_time_out_without_a_pipe_says_why_there_is_no_dump(here: Path) -> None:
    (here / "idle.py").write_text("import pathlib, time\npathlib.Path('hangs').touch()\ntime.sleep(600)\n")
    command = [sys.executable, "-c", CLOCK, "run", "--core", "--timeout", "3s", "idle.py"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 124 and "the program has not used the GPU yet" in done.stderr, done.stderr


@contextmanager
def running(source: str = "input()", **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that was started with these variables, and ends with the block."""
    environment = {name: value for name, value in os.environ.items() if "COREDUMP" not in name} | variables
    with subprocess.Popen([sys.executable, "-S", "-c", source], stdin=subprocess.PIPE, env=environment) as process:
        try:  # right after exec, a program's environment is empty
            wait_until(lambda: Path(f"/proc/{process.pid}/environ").read_bytes())
            yield process
        finally:
            process.kill()


def refused(pid: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["watch", "--core", str(pid)]) == 2
    return capsys.readouterr().err


def test_what_cannot_be_dumped_is_an_error_that_says_what_to_do(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running() as process:
        assert "start it with kscope run --core" in refused(process.pid, capsys)
    assert "there is no such process" in refused(process.pid, capsys)
    with running(**request.environment(here, here / "kscope-1")) as process:
        assert "the driver has not created its dump pipe" in refused(process.pid, capsys)
        os.mkfifo(here / f"{process.pid}.pipe")
        assert "no process reads it" in refused(process.pid, capsys)

        def forbidden(_: Any) -> dict[str, str]:
            raise PermissionError

        monkeypatch.setattr(request, "_variables", forbidden)
        assert "is another user's" in refused(process.pid, capsys)


READS = "import os; os.mkfifo(f'{os.getpid()}.pipe'); open('ready', 'w'); open(f'{os.getpid()}.pipe').read()"


def test_a_program_that_ends_without_a_dump_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(READS, **request.environment(here, here / "kscope-1")) as process:
        wait_until((here / "ready").exists)
        assert "the program has ended, and there is no " in refused(process.pid, capsys)


def test_names_of_the_driver_are_understood(here: Path) -> None:
    names = {request.PIPE: "pipe.%h.%p", request.FILE: "dump.%p.%t"}
    with running(**{request.ENABLE: "1"}, **names) as process:
        os.mkfifo(here / f"pipe.{os.uname().nodename}.{process.pid}")
        (target,) = request.targets(process.pid)
    assert target.file == here / f"dump.{process.pid}.*", "the time is known when it is written"


def test_a_folder_whose_name_has_a_code_of_the_driver_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contains %"):
        request.environment(tmp_path, Path("100%") / "kscope")


def test_processes_that_kscope_starts_are_not_dumped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in request.environment(tmp_path, tmp_path / "kscope-1").items():
        monkeypatch.setenv(name, value)
    assert not [name for name in child_environment() if "COREDUMP" in name]
