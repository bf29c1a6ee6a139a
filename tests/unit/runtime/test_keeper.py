"""survive="keeper": a real process keeps the memory, with a stand-in of the driver whose device memory is files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import PATIENCE_S, wait_until

from kscope.capture import wire
from kscope.capture.pools import keeper_socket, pool_arrays, pool_reading
from kscope.capture.pools.pool_file import PoolDevice, PoolFile
from kscope.errors import UsageError
from kscope.watching.verdict import verdict
from kscope_runtime.device_memory import Allocation
from kscope_runtime.driver import DeviceFacts
from kscope_runtime.keeper import Keeper
from kscope_runtime.pool_place import surviving

from .fake import FakeDriver
from .test_salvage import BINDINGS

SIZE, TABLE = 1 << 16, 4096
MORE = """
CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_DEVICEMAP = 1, 2

def cuMemHostGetDevicePointer(address, flags):
    return CUresult(), address
"""


class Rig:
    """A program's file, its device memory as files, and its keeper."""

    def __init__(self, folder: Path) -> None:
        self.file = PoolFile(folder / "1-1-gpu0.pool", PoolDevice(0, "a device", 4), 1, SIZE, is_copy=True)
        self.control = self._memory(folder / "control", TABLE + wire.SLOTS * wire.LAUNCH_BYTES)
        self.pool = self._memory(folder / "pool", SIZE)

    def _memory(self, path: Path, size: int) -> Allocation:
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(file, size)
        return Allocation(1 << 36, size, file)

    def keep(self) -> Keeper:
        return Keeper(0, self.file, self.control, self.pool, TABLE)

    def write(self, at: int, word: int) -> None:
        """A kernel writes a word of the pool, and the first word of the launch table."""
        os.pwrite(self.pool.file, word.to_bytes(4, "little"), at)
        os.pwrite(self.control.file, word.to_bytes(4, "little"), TABLE)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    package = tmp_path / "site" / "cuda" / "bindings"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "driver.py").write_text(BINDINGS.replace("def __getattr__", MORE + "\ndef __getattr__"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(keeper_socket, "_ANSWER_TIMEOUT_S", PATIENCE_S)  # the keeper is a process that has to start
    made = Rig(tmp_path)
    yield made
    for memory in (made.control, made.pool):
        os.close(memory.file)


def found(rig: Rig) -> tuple[int, int]:
    """The words that a reader sees."""
    pool = pool_reading.open_pool(rig.file.path)
    assert keeper_socket.refresh(pool) == ""
    return int(pool_arrays.units(pool)[2, 0]), int(pool_arrays.book(pool)["grid_id"][0])


def test_the_keeper_copies_whenever_a_reader_asks(rig: Rig) -> None:
    keeper = rig.keep()
    for word in (5, 6):
        rig.write(2 * wire.UNIT, word)
        assert found(rig) == (word, word)
    keeper.end()


def test_what_was_written_up_to_the_end_is_copied_when_the_program_is_gone(rig: Rig) -> None:
    keeper = rig.keep()
    found(rig)  # it is ready
    rig.write(2 * wire.UNIT, 7)
    keeper.end()  # closes the pipe, as the end of the program does
    assert found(rig) == (7, 7)
    assert pool_reading.open_pool(rig.file.path).state["is_final"] == 1
    assert not list(rig.file.path.parent.glob("*.look")), "the socket is gone"


def test_a_program_that_is_killed_leaves_a_keeper_that_copies_and_ends(rig: Rig, tmp_path: Path) -> None:
    source = (
        "import sys; from pathlib import Path; from tests.unit.runtime.test_keeper import Rig;"
        " folder = Path(sys.argv[1]); folder.mkdir(); rig = Rig(folder); keeper = rig.keep();"
        " rig.write(64, 9); print(keeper._process.pid, flush=True); sys.stdin.read()"
    )
    root = Path(__file__).resolve().parents[3]
    folder = tmp_path / "program"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)])}
    program = subprocess.Popen(
        [sys.executable, "-c", source, str(folder)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert program.stdout is not None
    keeper = int(program.stdout.readline())
    program.kill()
    program.communicate()
    (path,) = folder.glob("*.pool")
    pool = pool_reading.open_pool(path)
    assert keeper_socket.refresh(pool) == ""
    assert pool.state["is_final"] == 1 and int(pool_arrays.units(pool)[2, 0]) == 9
    wait_until(lambda: not Path(f"/proc/{keeper}").exists())


def test_a_session_that_ends_normally_leaves_neither_file_nor_process(rig: Rig) -> None:
    rig.keep()
    rig.file.end(remove=True)
    assert not rig.file.path.exists() and not list(rig.file.path.parent.glob("*.look"))


def test_a_reader_reports_that_the_keeper_does_not_answer(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_socket, "_ANSWER_TIMEOUT_S", 0.1)
    found = verdict(pool_reading.open_pool(rig.file.path))
    assert any("does not answer" in problem for problem in found.problems)


class Files:
    """Pool files as a session with survive= of this kind makes them."""

    def __init__(self, folder: Path, how: str) -> None:
        self.folder, self.how, self.devices = folder, how, list[PoolDevice]()

    def open(self, device: PoolDevice, size: int) -> PoolFile:
        self.devices.append(device)
        kept = self.how == "keeper" or (self.how == "auto" and device.can_keep)
        return PoolFile(self.folder / "2-1-gpu0.pool", device, 1, size, is_copy=kept)


@pytest.mark.parametrize(
    ("exclusive", "file", "why"), [(True, 9, "only one process"), (False, -1, "this driver cannot")]
)
def test_a_gpu_whose_memory_cannot_be_kept_is_refused_by_keeper_and_records_into_the_file_with_auto(
    exclusive: bool, file: int, why: str, tmp_path: Path
) -> None:
    driver, control = FakeDriver(), Allocation(1 << 36, SIZE, file)
    facts = DeviceFacts(0, "a device", 4, exclusive=exclusive)
    with pytest.raises(UsageError, match=f"{why}.*use survive='shm'"):
        surviving(driver, facts, 0, SIZE, Files(tmp_path, "keeper").open, control, TABLE)
    assert not list(tmp_path.glob("*.pool"))
    place = surviving(driver, facts, 0, SIZE, Files(tmp_path, "auto").open, control, TABLE)
    assert place.mapped is not None and place.keeper is None
