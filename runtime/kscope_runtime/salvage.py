"""Reads device memory that outlived its context through a new process, after a kernel broke the context. The memory
lives as long as one of its descriptors is open, so a process started after the fault maps it and copies it out.
"""

from __future__ import annotations

import os
import re
import select
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

import kscope
from kscope.errors import UnsupportedError

from .device_memory import Allocation
from .driver import CudaDriver
from .memory_ranges import Bytes, Ranges, read_each

_REQUEST = struct.Struct("<3q")  # index of the allocation, offset, bytes
_CHUNK = 32 << 20
_ANSWER_TIMEOUT_S = 30.0
"""Timeout of an answer: the process creates a context first."""
_CHILD = "from kscope_runtime.salvage import serve; serve()"


class SalvagedMemory:
    """Allocations of device `ordinal`, read by another process until the end of the `with` block.

    Raises:
        UnsupportedError: no other process can read them; the message gives the reason.
    """

    def __init__(self, ordinal: int, allocations: Sequence[Allocation]) -> None:
        self._allocations = allocations
        if any(memory.file < 0 for memory in allocations):
            raise UnsupportedError("this driver cannot share device memory with another process")
        arguments = [str(ordinal), *(f"{memory.file}:{memory.size}" for memory in allocations)]
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-S", "-c", _CHILD, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[memory.file for memory in allocations],
                env=child_environment(),
                start_new_session=True,  # Ctrl-C is the program's
            )
        except (OSError, RuntimeError, ValueError) as error:  # the interpreter is exiting, or is embedded
            raise UnsupportedError(f"no process could be started to read it: {error}") from error

    def __enter__(self) -> SalvagedMemory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._child.kill()
        self._child.communicate()

    def synchronize(self, stream: int) -> None:
        """No-op: every read is complete when it returns."""

    def read(self, into: Bytes, address: int, stream: int) -> None:
        """Copy device to host. Raises UnsupportedError if the process has ended or does not answer."""
        index, memory = next(
            (index, memory)
            for index, memory in enumerate(self._allocations)
            if memory.address <= address < memory.address + memory.size
        )
        assert self._child.stdin is not None and self._child.stdout is not None
        try:
            self._child.stdin.write(_REQUEST.pack(index, address - memory.address, into.nbytes))
            self._child.stdin.flush()
        except BrokenPipeError:
            raise self._refused() from None
        source, rest = self._child.stdout.fileno(), into.data
        answer = select.poll()  # select() refuses descriptors from 1,024 on
        answer.register(source, select.POLLIN)
        while len(rest):
            if not answer.poll(_ANSWER_TIMEOUT_S * 1000):
                raise UnsupportedError(f"the process that reads it has not answered for {_ANSWER_TIMEOUT_S:.0f} s")
            count = os.readv(source, [rest])
            if not count:
                raise self._refused()
            rest = rest[count:]

    def read_ranges(self, into: Bytes, ranges: Ranges, stream: int) -> None:
        """Copy ranges, one after the other in `into`."""
        read_each(self, into, ranges, stream)

    def _refused(self) -> UnsupportedError:
        last = self._child.communicate()[1].decode(errors="replace").strip().splitlines()[-1:]
        return UnsupportedError(f"the process that reads it ended: {''.join(last) or self._child.returncode}")


def child_environment() -> dict[str, str]:
    """This process's environment and import path, without settings that would record or dump the new process."""
    left_out = re.compile("KSCOPE|CUDA_.*COREDUMP")
    kept = {name: value for name, value in os.environ.items() if not left_out.match(name)}
    roots = (str(Path(module).parents[1]) for module in (__file__, kscope.__file__))
    return {**kept, "PYTHONPATH": os.pathsep.join([*roots, *filter(None, sys.path)])}


def serve() -> None:
    """Answer requests on stdin with memory on stdout, until stdin ends: `-c ... ORDINAL FILE:SIZE...`."""
    driver = CudaDriver()
    driver.use(int(sys.argv[1]))
    starts = [driver.map(*map(int, argument.split(":"))) for argument in sys.argv[2:]]
    buffer, stream = np.empty(_CHUNK, np.uint8), driver.stream()
    while request := sys.stdin.buffer.read(_REQUEST.size):
        index, offset, size = _REQUEST.unpack(request)
        for at in range(offset, offset + size, _CHUNK):
            piece = buffer[: min(_CHUNK, offset + size - at)]
            driver.read(piece, starts[index] + at, stream)
            driver.synchronize(stream)
            sys.stdout.buffer.write(piece.data)
        sys.stdout.buffer.flush()
