"""A launch run block by block by a DSL's interpreter: each block is one warp, on the host's clock."""

from __future__ import annotations

from random import Random
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


class InterpretedLaunch:
    """See ``kscope.instrument.backend.BlockLaunch``."""

    def __init__(self, device: SimDevice, name: str, module: Module, grid: Triple) -> None:
        self._device, self._name, self._module, self._grid = device, name, module, grid
        self._machine = Machine(sms=1, ghz=INTERPRETED_GHZ)
        self._start = device.now_ns - perf_counter_ns()
        self._id = device.begin(self._machine, lambda: self._start + perf_counter_ns())
        self._warp: Warp | None = None

    def block(self, index: Triple) -> None:
        """End the current block and start the next."""
        self._leave()
        module = self._module
        thread = Thread(
            module.id, module.log2_records, module.flags, self._id, self._grid, (32, 1, 1), index, 0, 0, 0
        )  # fmt: skip
        self._warp = Warp(
            thread, self._name, self._machine, Block(), self._device.memory, module, None, Random(0), self._now()
        )  # fmt: skip
        self._warp.begin()

    def mark(self, mark: Mark, value: Any, when: Any = None) -> None:
        """Execute a mark in the current block."""
        assert self._warp is not None, "block() comes before mark()"
        self._warp.strand.now = max(self._warp.strand.now, self._now())
        self._warp.mark(mark, value, when)

    def end(self) -> None:
        """End the current block and the launch."""
        self._leave()
        self._device.end(self._id)

    def abandon(self) -> None:
        """End the launch, and leave the current block unfinished."""
        self._warp = None
        self.end()

    def _leave(self) -> None:
        if self._warp is not None:
            self._warp.strand.now = max(self._warp.strand.now, self._now())
            self._warp.leave()
            self._warp = None
            self._device.drain_if_half_full()

    def _now(self) -> int:
        return self._machine.cycles(0, self._start + perf_counter_ns())
