"""A launch that somebody else runs, one block after the other: an interpreter of another DSL's.

It records like a simulated kernel whose blocks have one warp each, on the host's own clock. What lives
here: such a launch. What does not: who runs it.
"""

from __future__ import annotations

from random import Random
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from kscope.marks.grammar import Mark

from .block import Block
from .machine import INTERPRETED_GHZ, Machine
from .module import Module
from .protocol import Thread
from .warp import Warp

if TYPE_CHECKING:
    from .backend import SimBackend


class Guest:
    """One launch of the grid (x, y, z): block() begins each block, mark() does what a mark means in the
    one that runs, end() ends the launch."""

    def __init__(self, host: SimBackend, name: str, module: Module, grid: tuple[int, int, int]) -> None:
        self._host, self._name, self._module, self._grid = host, name, module, grid
        self._machine = Machine(sms=1, ghz=INTERPRETED_GHZ)
        self._id = host.begin(self._machine)
        self._start = host.now_ns - perf_counter_ns()
        self._warp: Warp | None = None

    def block(self, index: tuple[int, int, int]) -> None:
        """The block before has ended, this one begins."""
        self._leave()
        module = self._module
        thread = Thread(
            module.id, module.log2_records, module.flags, self._id, self._grid, (32, 1, 1), index, 0, 0, 0
        )  # fmt: skip
        self._warp = Warp(
            thread, self._name, self._machine, Block(), self._host.memory, module, None, Random(0), self._now()
        )  # fmt: skip
        self._warp.begin()

    def mark(self, mark: Mark, value: Any, when: Any = None) -> None:
        """As Warp.mark(), now."""
        assert self._warp is not None, "marks stand in blocks"
        self._warp.strand.now = max(self._warp.strand.now, self._now())
        self._warp.mark(mark, value, when)

    def end(self) -> None:
        """The last block and the launch have ended."""
        self._leave()
        self._host.now_ns = self._start + perf_counter_ns()
        self._host.end()

    def abandon(self) -> None:
        """The block that runs never finishes."""
        self._warp = None
        self.end()

    def _leave(self) -> None:
        if self._warp is not None:
            self._warp.strand.now = max(self._warp.strand.now, self._now())
            self._warp.leave()
            self._warp = None
            self._host.drain_if_half_full()

    def _now(self) -> int:
        return self._machine.cycles(0, self._start + perf_counter_ns())
