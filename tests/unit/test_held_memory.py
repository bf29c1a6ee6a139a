"""Where /dev/shm is small, as in Docker, `kscope run` holds the memory of pools, and keeps what a dead program left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kscope
from kscope.capture.pools import held_memory, pool_folder
from kscope.capture.pools.pool_file import PoolDevice, PoolFile, file_bytes
from kscope.cli.running.left_pools import LeftPools
from kscope.errors import UsageError

PROGRAM = Path(__file__).with_name("black_box_program.py")
SMALL = """import os
def small(of):
    def look(file):
        found = [*of(file)]
        found[4] = found[3] = 100  # free blocks
        return os.statvfs_result(found)
    return look
os.statvfs = small(os.statvfs)
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose file system seems to have room for 100 blocks, in programs that are started."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SMALL)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv(pool_folder.VARIABLE, str(tmp_path / "pools"))
    return tmp_path / "pools"


def start(fault: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kscope", "run", "--survive", "shm", "-o", str(folder / "run.kscope")]
    return subprocess.Popen([*command, str(PROGRAM), fault], cwd=folder, stderr=subprocess.PIPE, text=True)


def test_a_killed_program_leaves_a_capture_where_its_memory_was_held(small: Path, tmp_path: Path) -> None:
    program = start("kill", tmp_path)
    errors = program.communicate(timeout=60)[1]
    assert program.returncode == 128 + signal.SIGKILL, errors
    assert "consumer warps 1-3 of block 0 are in `wait_full` (value 7)" in errors
    assert not any(small.iterdir()), "no unreadable file is left"
    (kept,) = tmp_path.glob("kscope-*.kscope")
    assert f"kscope summary {kept.name}" in errors
    trace = kscope.load(kept)
    counts = {row.region: row.count for row in trace.summary().regions}
    assert counts["load"] == 2 * 12 + 10
    assert "kscope run holds the memory" in kscope.load(kept).recorded.host["survive"]["sim0"]


def test_it_is_watched_like_a_file(small: Path, tmp_path: Path) -> None:
    program = start("signal", tmp_path)
    try:
        for _ in range(600):
            if found := [*pool_folder.pools()]:
                break
            time.sleep(0.05)
        (pool,) = found
        assert os.readlink(pool.path).startswith(f"/proc/{program.pid}/"), "kscope run holds it"
        assert pool.is_running() and pool.pid != program.pid
    finally:
        program.send_signal(signal.SIGTERM)
        program.communicate(timeout=60)


def test_a_session_that_ends_normally_leaves_nothing(small: Path, tmp_path: Path) -> None:
    program = start("none", tmp_path)
    assert program.communicate(timeout=60)[1].count("what was recorded") == 0
    assert program.returncode == 0
    assert not any(small.iterdir()) and not any(tmp_path.glob("kscope-*"))


def test_without_a_holder_the_error_says_what_to_do(small: Path) -> None:
    program = 'import kscope, kscope_sim\nwith kscope.profile(survive="shm"): pass'
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, "100 blocks are enough to start with"
    program = f"{SMALL}\nos.fstatvfs = small(os.fstatvfs)\n{program}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "has no room" in done.stderr and "start the program with kscope run" in done.stderr


def test_a_holder_that_does_not_take_it_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_memory, "_HOLDER_TIMEOUT_S", 0.05)
    path = tmp_path / "1.pool"
    file = held_memory.offer(path)
    with pytest.raises(UsageError, match="is it suspended"):
        held_memory.wait(path)
    assert not path.exists()
    os.close(file)


AGAIN = """import os
from kscope.capture.pools import held_memory, pool_folder
held_memory._HOLDER_TIMEOUT_S = 2
path = pool_folder.private_folder() / pool_folder.name_of(os.getpid(), 1, "gpu0")
for _ in range(2):
    held_memory.offer(path)
    held_memory.wait(path)
    path.unlink()
"""


def test_memory_that_a_program_offers_again_at_once_is_held_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the driver refuses the first: between two looks, the same path is another file."""
    monkeypatch.setenv(pool_folder.VARIABLE, str(tmp_path / "pools"))
    with subprocess.Popen([sys.executable, "-c", AGAIN], stderr=subprocess.PIPE, text=True) as program:
        pools = LeftPools(program.pid)
        while program.poll() is None:
            pools.hold()
            time.sleep(0.01)
        assert program.returncode == 0, program.stderr and program.stderr.read()


def test_links_of_processes_that_are_gone_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pool_folder.VARIABLE, str(tmp_path / "pools"))
    folder = pool_folder.private_folder()
    PoolFile(folder / "1-1-gpu0.pool", PoolDevice(0, "", 4), 1, 1 << 16)
    (folder / "2-1-gpu0.pool").symlink_to("/proc/4194305/fd/3")
    assert [pool.path.name for pool in pool_folder.pools()] == ["1-1-gpu0.pool"]
    assert [path.name for path in folder.iterdir()] == ["1-1-gpu0.pool"]
    assert (folder / "1-1-gpu0.pool").stat().st_size == file_bytes(1 << 16)
