"""Launches that another DSL's interpreter runs, on the host's clock: by block or by thread."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random
from threading import Lock
from time import perf_counter_ns
from typing import Any

from kscope.instrument.backend import Triple
from kscope.marks.grammar import Mark

from .block import Block
from .device import SimDevice
from .machine import INTERPRETED_GHZ, Machine
from .module import Module
from .protocol import Thread
from .warp import Warp


class _OnHostClock:
    """A launch on one SM."""

    def __init__(
        self, device: SimDevice, name: str, module: Module, grid: Triple, threads: Triple = (32, 1, 1)
    ) -> None:
        self._device, self._name, self._module, self._grid, self._block_shape = device, name, module, grid, threads
        self._machine = Machine(sms=1, ghz=INTERPRETED_GHZ)
        self._start = device.now_ns - perf_counter_ns()
        self._id = device.begin(self._machine, self._ns, interpreted=True)

    def _ns(self) -> float:
        return self._start + perf_counter_ns()

    def _now(self) -> int:
        return self._machine.cycles(0, self._ns())

    def _warp(self, block: Triple, index: int, lane: int) -> Warp:
        module = self._module
        thread = Thread(
            module.id, module.log2_records, module.flags, self._id, self._grid, self._block_shape, block, index, lane, 0
        )  # fmt: skip
        return Warp(
            thread, self._name, self._machine, Block(), self._device.memory, module, None, Random(0), self._now()
        )  # fmt: skip

    def _advance(self, warp: Warp) -> Warp:
        warp.strand.now = max(warp.strand.now, self._now())
        return warp


class InterpretedLaunch(_OnHostClock):
    """Each block is one warp. See ``kscope.instrument.backend.BlockLaunch``."""

    _current: Warp | None = None

    def block(self, index: Triple) -> None:
        """End the current block and start the next."""
        self._leave()
        self._current = self._warp(index, 0, 0)
        self._current.begin()

    def mark(self, mark: Mark, value: Any, when: Any = None) -> None:
        """Execute a mark in the current block."""
        assert self._current is not None, "block() comes before mark()"
        self._advance(self._current).mark(mark, value, when)

    def end(self) -> None:
        """End the current block and the launch."""
        self._leave()
        self._device.end(self._id)

    def abandon(self) -> None:
        """End the launch, and leave the current block unfinished."""
        self._current = None
        self.end()

    def _leave(self) -> None:
        if self._current is not None:
            self._advance(self._current).leave()
            self._current = None
            self._device.drain_if_half_full()


class ThreadedLaunch(_OnHostClock):
    """Each thread is a lane of a warp. See ``kscope.instrument.backend.ThreadLaunch``."""

    def __init__(self, device: SimDevice, name: str, module: Module, grid: Triple, block: Triple) -> None:
        super().__init__(device, name, module, grid, block)
        self._lock = Lock()
        self._threads: dict[object, tuple[Warp, ExitStack]] = {}

    def begin(self, key: object, block: Triple, thread: Triple) -> None:
        """Begin a thread."""
        (x, y, z), (nx, ny, _) = thread, self._block_shape
        index, lane = divmod(x + nx * (y + ny * z), 32)
        with self._lock:
            warp = self._warp(block, index, lane)
            alone = ExitStack()
            alone.enter_context(warp.where(1 << lane))
            self._threads[key] = warp, alone
            warp.begin()

    def mark(self, key: object, mark: Mark, value: Any, when: Any = None) -> bool:
        """Execute a mark in a thread; False if it did not begin in this launch."""
        with self._lock:
            found = self._threads.get(key)
            if found is not None:
                self._advance(found[0]).mark(mark, value, when)
            return found is not None

    def leave(self, key: object) -> None:
        """Return from a thread."""
        with self._lock:
            warp, alone = self._threads.pop(key)
            self._advance(warp).leave()
            alone.close()
            if not self._threads:  # between blocks
                self._device.drain_if_half_full()

    def end(self) -> None:
        """End the launch. Threads that did not leave never finish."""
        self._threads.clear()
        self._device.end(self._id)
