"""A launch that another DSL's simulator runs thread by thread: each is a lane of a warp, on the host's clock."""

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


class ThreadedLaunch:
    """See ``kscope.instrument.backend.ThreadLaunch``."""

    def __init__(self, device: SimDevice, name: str, module: Module, grid: Triple, block: Triple) -> None:
        self._device, self._name, self._module, self._grid, self._block = device, name, module, grid, block
        self._machine = Machine(sms=1, ghz=INTERPRETED_GHZ)
        self._start = device.now_ns - perf_counter_ns()
        self._id = device.begin(self._machine, lambda: self._start + perf_counter_ns())
        self._lock = Lock()
        self._threads: dict[object, tuple[Warp, ExitStack]] = {}

    def begin(self, key: object, block: Triple, thread: Triple) -> None:
        """A thread begins."""
        (x, y, z), (nx, ny, _) = thread, self._block
        index, lane = divmod(x + nx * (y + ny * z), 32)
        module = self._module
        with self._lock:
            place = Thread(
                module.id, module.log2_records, module.flags, self._id, self._grid, self._block, block, index, lane, 0
            )  # fmt: skip
            warp = Warp(
                place, self._name, self._machine, Block(), self._device.memory, module, None, Random(0), self._now()
            )  # fmt: skip
            alone = ExitStack()
            alone.enter_context(warp.where(1 << lane))
            self._threads[key] = warp, alone
            warp.begin()

    def mark(self, key: object, mark: Mark, value: Any, when: Any = None) -> bool:
        """A thread reaches a mark; False if it did not begin in this launch."""
        with self._lock:
            found = self._threads.get(key)
            if found is not None:
                self._advance(found[0]).mark(mark, value, when)
            return found is not None

    def leave(self, key: object) -> None:
        """A thread returns."""
        with self._lock:
            warp, alone = self._threads.pop(key)
            self._advance(warp).leave()
            alone.close()
            if not self._threads:  # between blocks
                self._device.drain_if_half_full()

    def end(self) -> None:
        """The launch has ended. Threads that did not leave never finish."""
        self._threads.clear()
        self._device.end(self._id)

    def _advance(self, warp: Warp) -> Warp:
        warp.strand.now = max(warp.strand.now, self._now())
        return warp

    def _now(self) -> int:
        return self._machine.cycles(0, self._start + perf_counter_ns())
