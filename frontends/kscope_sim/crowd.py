"""A launch that somebody else runs, thread by thread: another DSL's simulator of a whole grid.

Every thread of the grid records like one lane of a simulated warp, on the host's own clock; threads may run at
the same time. What lives here: such a launch. What does not: who runs it.
"""

from __future__ import annotations

from contextlib import ExitStack
from random import Random
from threading import Lock
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

Triple = tuple[int, int, int]


class Crowd:
    """One launch of `grid` blocks of `block` threads: begin() and leave() around each thread's run, mark() for
    what a mark means in it, end() after the last. All may be called from any thread of the host."""

    def __init__(self, host: SimBackend, name: str, module: Module, grid: Triple, block: Triple) -> None:
        self._host, self._name, self._module, self._grid, self._block = host, name, module, grid, block
        self._machine = Machine(sms=1, ghz=INTERPRETED_GHZ)
        self._id = host.begin(self._machine)
        self._start = host.now_ns - perf_counter_ns()
        self._lock = Lock()
        self._threads: dict[object, tuple[Warp, ExitStack]] = {}

    def begin(self, key: object, block: Triple, thread: Triple) -> None:
        """A thread begins: `key` names it from now on; its block's index and its own in the block, (x, y, z) each."""
        (x, y, z), (nx, ny, _) = thread, self._block
        index, lane = divmod(x + nx * (y + ny * z), 32)
        module = self._module
        with self._lock:
            place = Thread(
                module.id, module.log2_records, module.flags, self._id, self._grid, self._block, block, index, lane, 0
            )  # fmt: skip
            warp = Warp(
                place, self._name, self._machine, Block(), self._host.memory, module, None, Random(0), self._now()
            )  # fmt: skip
            alone = ExitStack()
            alone.enter_context(warp.where(1 << lane))
            self._threads[key] = warp, alone
            warp.begin()

    def mark(self, key: object, mark: Mark, value: Any, when: Any = None) -> bool:
        """As Warp.mark(), now; False for a thread that did not begin here."""
        with self._lock:
            found = self._threads.get(key)
            if found is not None:
                self._advance(found[0]).mark(mark, value, when)
            return found is not None

    def leave(self, key: object) -> None:
        """A thread has returned."""
        with self._lock:
            warp, alone = self._threads.pop(key)
            self._advance(warp).leave()
            alone.close()
            if not self._threads:  # between blocks
                self._host.drain_if_half_full()

    def end(self) -> None:
        """The launch has ended; threads that did not leave never finish."""
        self._threads.clear()
        self._host.now_ns = self._start + perf_counter_ns()
        self._host.end()

    def _advance(self, warp: Warp) -> Warp:
        warp.strand.now = max(warp.strand.now, self._now())
        return warp

    def _now(self) -> int:
        return self._machine.cycles(0, self._start + perf_counter_ns())
