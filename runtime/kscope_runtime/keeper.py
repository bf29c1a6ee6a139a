"""The process that keeps a device's records for a program: survive="keeper". It maps the pool and the launch table, and
copies them to the program's pool file when `kscope watch` requests it, and when the program has ended.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

from kscope.capture.pools import keeper_socket
from kscope.capture.pools.pool_file import PoolFile
from kscope.capture.pools.pool_layout import BOOK_AT, BOOK_BYTES, HEADER, STATE, STATE_AT
from kscope.errors import DriverError, KscopeError, UsageError
from kscope.util import processes

from .device_memory import Allocation
from .driver import CudaDriver
from .memory_ranges import Bytes
from .salvage import child_environment

_CHILD = "from kscope_runtime.keeper import serve; serve()"
_EXIT_TIMEOUT_S = 20.0
"""Timeout of the last copy, and before that of a context that is being created."""
_LOOK_S = 1.0
"""Interval of checks that the program exists, should a child of it hold its pipe open."""


class Keeper:
    """Starts and ends the keeper of a program, from within that program.

    Args:
        ordinal: of the device.
        file: the pool file.
        control: the control block, with a descriptor.
        pool: the pool, likewise.
        table: offset of the launch table in the control block.

    Raises:
        UsageError: no process can be started.
    """

    def __init__(self, ordinal: int, file: PoolFile, control: Allocation, pool: Allocation, table: int) -> None:
        shared = [control.file, pool.file]
        numbers = [ordinal, *(n for one in (control, pool) for n in (one.file, one.size)), table]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-c", _CHILD, str(file.path), *map(str, numbers)],
                stdin=subprocess.PIPE, pass_fds=shared, env=child_environment(), start_new_session=True,
            )  # fmt: skip
        except (OSError, RuntimeError, ValueError) as error:
            raise UsageError(f"survive='keeper': no process could be started: {error}; use survive='shm'") from error
        file.at_end = self.end

    def end(self) -> None:
        """End the keeper, which copies once more if the file still exists."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
            try:
                self._process.wait(_EXIT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def serve() -> None:
    """Keep the memory: `-c ... FILE ORDINAL CONTROL BYTES POOL BYTES TABLE`."""
    path = Path(sys.argv[1])
    ordinal, control, control_bytes, pool, pool_bytes, table = map(int, sys.argv[2:])
    if not path.exists():  # the session has ended meanwhile
        return
    with path.open("r+b") as opened:
        file: Bytes = np.frombuffer(mmap.mmap(opened.fileno(), 0), np.uint8)
    state = file[STATE_AT : STATE_AT + STATE.itemsize].view(STATE)
    try:
        kept = _Kept(file, ordinal, (control, control_bytes), (pool, pool_bytes), table)
    except (DriverError, KscopeError) as error:  # such as a GPU for one process only
        print(f"kscope: survive='keeper' keeps nothing: {error}; use survive='shm'", file=sys.stderr)
        return
    listener = keeper_socket.listen(path)
    state["keeper"] = os.getpid()
    header = file[: HEADER.itemsize].view(HEADER)[0]
    program = int(header["pid"]), int(header["born"]), header["boot"].decode("ascii", "replace")
    while True:
        ready, _, _ = select.select([sys.stdin, listener], [], [], _LOOK_S)
        if sys.stdin in ready or not processes.is_running(*program):
            break
        if listener in ready:
            kept.answer(listener)
    if path.exists():
        kept.copy()
    state["is_final"] = 1
    keeper_socket.forget(path)


class _Kept:
    """Device memory that is mapped here, and the file for its copies."""

    def __init__(self, file: Bytes, ordinal: int, control: tuple[int, int], pool: tuple[int, int], table: int) -> None:
        self._driver = CudaDriver()
        self._driver.use(ordinal)
        header = file[: HEADER.itemsize].view(HEADER)[0]
        at = int(header["pool_at"])
        self._driver.register(file)
        self._stream = self._driver.stream()
        self._parts = (
            (file[BOOK_AT : BOOK_AT + BOOK_BYTES], self._driver.map(*control) + table),
            (file[at : at + int(header["pool_bytes"])], self._driver.map(*pool)),
        )

    def copy(self) -> None:
        """Copy everything to the file: first the launches, which are older than the records that refer to them."""
        for into, address in reversed(self._parts):
            self._driver.read(into, address, self._stream)
            self._driver.synchronize(self._stream)

    def answer(self, listener: socket.socket) -> None:
        """Copy for a reader, and notify it."""
        reader, _ = listener.accept()
        with reader:
            self.copy()
            keeper_socket.answer(reader)
