"""survive= under MPS, whose server shares the GPU between processes: a private daemon serves these tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import PATIENCE_S, wait_until

from kscope.capture.pools.pool_folder import pools
from kscope.watching.verdict import verdict

PROGRAM = Path(__file__).with_name("mps_program.py")
CONTROL = "nvidia-cuda-mps-control"


def control(command: str) -> str:
    """The answer of the daemon to a command."""
    done = subprocess.run([CONTROL], input=f"{command}\n", capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


@pytest.fixture
def mps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A daemon of this test alone: programs find it by the folder of its pipes. The GPU's settings stay as they are."""
    if shutil.which(CONTROL) is None:
        pytest.skip(f"needs {CONTROL}")
    with tempfile.TemporaryDirectory(prefix="mps-", dir="/tmp") as folder:  # a socket's path must be short
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", folder)
        monkeypatch.setenv("CUDA_MPS_LOG_DIRECTORY", folder)
        started = subprocess.run([CONTROL, "-d"], capture_output=True, text=True, timeout=60, check=False)
        if started.returncode:
            pytest.skip(f"{CONTROL} -d: {started.stdout}{started.stderr}")
        try:
            yield
        finally:
            control("quit -t 10")


@pytest.mark.usefixtures("mps")
@pytest.mark.parametrize("survive", ["shm", "keeper"])
def test_warps_are_seen_while_they_wait_and_the_program_ends_as_without_mps(
    survive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        monkeypatch.setenv("KSCOPE_SURVIVE_FOLDER", folder)
        command = [sys.executable, str(PROGRAM), survive]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as program:
            try:
                assert program.stdout is not None
                assert program.stdout.readline() == "launched\n", program.communicate()[1]
                assert control("get_server_list").strip().isdecimal(), "the program is served by the daemon"

                def waits() -> bool:
                    launches = [launch for pool in pools() for launch in verdict(pool).launches]
                    found = {(one.state, one.region, one.blocks) for launch in launches for one in launch.groups}
                    return ("in", "wait_full", "5") in found

                wait_until(lambda: waits() or program.poll() is not None)
                printed, errors = program.communicate("go\n", timeout=PATIENCE_S)
            finally:
                program.kill()
        assert program.returncode == 0, errors
        # beside other tests the warp may wait for 2^32 cycles, about two seconds, and the clock's speed may change
        assert printed in {f"4 records; {[*kinds]}\n" for kinds in ((), ("wrap",), ("clock",), ("wrap", "clock"))}
        assert not list(Path(folder).glob("*.pool"))
