"""The warp argument of a simulated kernel: indices, clock, active lanes and marks.

def kernel(warp, n):
    with kscope.region("load", value=warp.index):
        warp.work(400)                          # cycles
    warp.sync()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from kscope.capture.layout import FLAG_ANY, FLAG_LANES, Kind
from kscope.errors import UsageError
from kscope.marks.grammar import Mark
from kscope.marks.operations import PIPELINE, Operation
from kscope.marks.strategies import AllThreads, Strategy, parse_strategy

from . import samples
from .barriers import Barrier, mark_of
from .block import Block, Strand, Trapped
from .groups import Groups
from .lanes import Lane, Lanes, mask
from .machine import READ_CYCLES, Machine
from .memory import U32, Memory
from .module import Module, caller, elects
from .nesting import Nesting
from .protocol import Anchor, Slab, Thread, add_flags, announce, claim
from .samples import SampledWarp
from .values import Halves, predicate, words

_running = threading.local()


def current() -> Warp | None:
    """The warp running on this host thread; None outside of a kernel."""
    warp: Warp | None = getattr(_running, "warp", None)
    return warp


class Warp:
    """One warp of a simulated kernel; the first argument of every kernel.

    Attributes:
        block, grid, threads: block index, grid and block dimensions, (x, y, z) each.
        index: warp of the block (linear thread id / 32).
        smid: its SM.
        role: its name in launch(roles=...), or None.
        shared: a dict that all warps of the block share.
        random: random numbers, fixed by the seed.
    """

    def __init__(
        self, thread: Thread, kernel: str, machine: Machine, block: Block, memory: Memory | None,
        module: Module | None, role: str | None, random: Random, now: int,
        sampled: SampledWarp | None = None,
    ) -> None:  # fmt: skip
        self.block, self.grid, self.threads = thread.ctaid, thread.nctaid, thread.ntid
        self.index, self.smid, self.role, self.random = thread.warp, thread.smid, role, random
        self.shared = block.shared
        self.kernel, self._thread, self._machine, self._memory, self._module = kernel, thread, machine, memory, module
        self._block, self._syncs, self._sampled = block, 0, sampled
        size = thread.ntid[0] * thread.ntid[1] * thread.ntid[2]
        self._active = (1 << min(32, size - 32 * thread.warp)) - 1  # a partial warp has fewer lanes
        self._left = 0
        self._nesting = Nesting(kernel, thread.warp)
        self._lanes: dict[int, Lane] = {}
        self._groups: dict[str, Groups] = {}
        self.strand = Strand(lambda: None, now)

    # place

    @property
    def lanes(self) -> tuple[int, ...]:
        """The active lanes."""
        return tuple(lane for lane in range(32) if self._active >> lane & 1)

    def thread(self, lane: int) -> tuple[int, int, int]:
        """threadIdx of a lane.

        Args:
            lane: the lane's index, 0 to 31.
        """
        linear, (nx, ny, _) = 32 * self.index + lane, self.threads
        return linear % nx, linear // nx % ny, linear // (nx * ny)

    # time

    @property
    def now(self) -> int:
        """SM cycles since power-on."""
        return self.strand.now

    def work(self, cycles: int, why: str = samples.WORK) -> None:
        """Advance the clock, if any lane is active.

        Args:
            cycles: SM cycles.
            why: the reason that samples of stalls show.
        """
        if self._active:
            self.strand.now += max(0, cycles)
            self._stood(cycles, why, "work")

    def _stood(self, cycles: int, why: str, text: str) -> None:
        if self._sampled is not None:
            self._sampled.spent(cycles, why, text, self._unix)

    def sync(self) -> None:
        """__syncthreads(): wait until every warp of the block has arrived or exited."""
        self._syncs, before = self._syncs + 1, self.now
        self._block.sync(self.strand, self._syncs - 1)
        self._stood(self.now - before, samples.BARRIER, "sync")

    def arrive(self, event: Hashable) -> None:
        """Count one arrival at an event of this block.

        Args:
            event: any hashable object that names the event.
        """
        self._block.arrive(self.strand, event)

    def wait(self, event: Hashable, arrivals: int = 1) -> None:
        """Wait until an event has enough arrivals since the block started.

        Args:
            event: any hashable object that names the event.
            arrivals: how many to wait for.
        """
        before = self.now
        self._block.wait(self.strand, event, arrivals)
        self._stood(self.now - before, samples.EVENT, "wait")

    def barrier(self, key: Hashable, arrivals: int) -> Barrier:
        """An mbarrier of this block; the first call for a key initializes it.

        Args:
            key: any hashable object that names the barrier.
            arrivals: how many end a phase.
        """
        return Barrier(self._block, self.strand, key, arrivals, lambda: self._active.bit_count(), self._operation)

    def groups(self, of: str = "cp.async") -> Groups:
        """The groups of asynchronous work of this warp.

        Args:
            of: the instruction: cp.async, cp.async.bulk, or wgmma.
        """
        return self._groups.setdefault(of, Groups(of, self, self._operation))

    def _operation(self, what: str, operation: Operation, word: Any) -> None:
        """Record an operation on a barrier or a group, with auto="pipeline"."""
        selected = self._module is not None and self._module.recording.selection.of_kernel(self.kernel)
        if selected and PIPELINE in selected.kinds:
            mark = mark_of(what, operation, caller())
            self.mark(mark, None if mark.act == "exit" else np.uint32(word))

    # lanes

    @contextmanager
    def where(self, lanes: Lanes) -> Generator[None, None, None]:
        """A divergent branch: only these of the active lanes are active inside.

        Args:
            lanes: a bit mask, lane numbers, or a function of the lane. Without active lanes no time passes and no mark
                records.
        """
        before, self._active = self._active, self._active & mask(lanes)
        try:
            yield
        finally:
            self._active = before & ~self._left

    def leave(self, lanes: Lanes = U32) -> None:
        """Early return of some active lanes.

        Args:
            lanes: as for where().
        """
        leaving = self._active & mask(lanes)
        self._nesting.at_return(leaving if self._memory is not None else 0)
        if leaving and self._memory is not None and self._lanes:
            end = self._anchor()
            for lane, state in self._lanes.items():
                if leaving >> lane & 1 and state.slab is not None:
                    state.slab.leave(end)
        self._left |= leaving
        self._active &= ~leaving

    def trap(self) -> None:
        """Abort the warp: its slabs stay unfinished."""
        raise Trapped

    # called by the launch

    def run(self, kernel: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Execute the kernel's entry, body, and return.

        Args:
            kernel: the kernel.
            args: its arguments after the warp.
        """
        _running.warp = self
        try:
            self.begin()
            kernel(self, *args)
            self.leave()
        except Trapped:
            self._active = 0
        finally:
            _running.warp = None

    def begin(self) -> None:
        """The kernel's entry."""
        if self._memory is None or self._module is None:
            return
        self._start = self._anchor()
        self._epoch = int(self._memory.gate["epoch"])
        with self._memory.lock:
            announce(self._memory, self._thread, self._epoch, self._start.time)
        if not self._module.marked:
            return
        for lane in self.lanes:
            if self._module.recording.strategy.records(self.index, lane):
                self._lane(lane, isinstance(self._module.recording.strategy, AllThreads))

    def _lane(self, lane: int, every: bool = False) -> Lane:
        """The state of a recording lane; claims its slab on first use."""
        if lane not in self._lanes:
            self._lanes[lane] = Lane(self._slab(lane, FLAG_LANES if every else 0))
        return self._lanes[lane]

    def _slab(self, lane: int, flags: int) -> Slab | None:
        assert self._memory is not None
        assert self._module is not None
        with self._memory.lock:
            if flags:
                self._module.flags |= flags
                add_flags(self._memory, self._thread, self._epoch, flags)
            return claim(self._memory, replace(self._thread, lane=lane), self._epoch, self._start)

    # clocks

    def _clock(self) -> int:
        self.strand.now += READ_CYCLES
        return self._machine.clock64(self.smid, self.now - READ_CYCLES)

    def _unix(self, ago: int) -> int:
        return self._machine.globaltimer(self._machine.ns(self.smid, self.now - ago))

    def _globaltimer(self) -> int:
        self.strand.now += READ_CYCLES
        return self._machine.globaltimer(self._machine.ns(self.smid, self.now - READ_CYCLES))

    def _tick(self) -> int:
        assert self._module is not None
        return self._globaltimer() if self._module.recording.clock == "globaltimer" else self._clock()

    def _anchor(self) -> Anchor:
        clock, time = self._clock(), self._globaltimer()
        return Anchor(clock, time, min(self._clock() - clock, U32))

    def read(self, name: str) -> Any:
        """The value of a device helper: a number, or for lane_id an array of shape (32,).

        Args:
            name: a key of ``ptx.READINGS``, such as "clock".
        """
        if name == "lane_id":
            return np.arange(32, dtype=np.int32)
        if name in ("globaltimer", "clock64"):
            return np.int64(self._clock() if name == "clock64" else self._globaltimer())
        if name == "clock":
            return np.uint32(self._clock() & U32)
        (x, y, z), (nx, ny, _) = self.block, self.grid
        return np.int32({"smid": self.smid, "warp_id": self.index, "block_id": x + nx * (y + ny * z)}[name])

    # marks

    def mark(self, mark: Mark, value: Any, when: Any = None) -> None:
        """Execute a mark in the active lanes, if the kernel is recorded.

        Args:
            mark: the mark.
            value: its value, None for none.
            when: a bool, or 32 of them in an array, one per lane; None is always.
        """
        if self._module is None or not self._active or mark.act == "pin":  # nothing moves here: nothing to pin
            return
        kind, bits = (None, None) if value is None else words(mark, value)
        self._module.note(mark, kind)
        # pairing is checked in every lane, also in those that do not record
        if mark.act == "enter":
            self._nesting.enter(mark.name, self._active, explicit=mark.how == "call")
        elif mark.act == "exit":
            self._nesting.exit(mark.name, self._active)
        tick = self._tick()  # one read, by all lanes at once
        if self._sampled is not None:  # a reading returns the clock at its begin: what it takes follows the mark
            self._sampled.marked(mark.act, mark.name, READ_CYCLES, self._unix)
        strategy = self._module.recording.strategy if mark.strategy is None else parse_strategy(mark.strategy)
        held = predicate(mark, when)
        if elects(strategy):  # the first of the lanes that are here together, decided at the enter
            held = [one and lane == self.lanes[0] for lane, one in enumerate(held)]
        for lane in self.lanes:
            if strategy.records(self.index, lane) or elects(strategy):
                word = None if kind is None or bits is None else Halves.of(kind, bits[lane])
                self._record(lane, strategy, mark, tick, word, held[lane])
        if mark.act != "enter":
            slabs = [self._lanes[lane].slab for lane in self.lanes if lane in self._lanes]
            if due := [slab for slab in slabs if slab is not None and slab.is_anchor_due(tick)]:
                anchor = self._anchor()
                for slab in due:
                    slab.store_anchor(anchor)

    def _record(self, number: int, strategy: Strategy, mark: Mark, tick: int, value: Halves | None, held: bool) -> None:
        if strategy.records(self.index, number):
            lane = self._lane(number, isinstance(strategy, AllThreads))
        else:  # claims at its first store
            lane = self._lanes.setdefault(number, Lane(None, late=True))
        if mark.act == "enter":
            lane.starts.setdefault(mark.name, []).append((tick, value, held))
            assert self._module is not None
            if self._module.recording.survive and held:
                self._claim_late(number, lane, held)
                if lane.slab is not None:
                    lane.slab.enter(mark.name, tick, value)
        elif mark.act == "exit":
            starts = lane.starts.get(mark.name)
            if not starts:
                raise UsageError(f"region {mark.display_name} is left with a strategy that it was not entered with")
            start, value, held = starts.pop()
            self._claim_late(number, lane, held)
            if lane.slab is not None and held:
                lane.slab.store(mark.name, Kind.SPAN if value is None else Kind.SPAN_VALUE, start, tick, value)
        else:
            self._claim_late(number, lane, held)
            if lane.slab is not None and held:
                instant = Kind.INSTANT if value is None else Kind.INSTANT_VALUE
                lane.slab.store(mark.name, Kind.COUNTER if mark.act == "counter" else instant, tick, tick, value)

    def _claim_late(self, number: int, lane: Lane, held: bool) -> None:
        if lane.late and held:
            lane.late, lane.slab = False, self._slab(number, FLAG_ANY)
