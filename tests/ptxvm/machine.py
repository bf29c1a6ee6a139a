"""Threads on the simulated machine: grids, special registers, clocks, and the scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Any, Literal

from .compiler import Meeting, ThreadBody, ThreadState, compile_kernel
from .mbarriers import Barriers
from .memory import FaultError, Memory
from .parser import parse_module
from .syntax import Module

Dim = tuple[int, int, int]
Order = Literal["turns", "lockstep", "random"]
M32 = 0xFFFFFFFF


@dataclass(frozen=True)
class Grid:
    """The shape of a launch. `cluster` (1, 1, 1) with explicit=False: not a cluster launch."""

    grid: Dim = (1, 1, 1)
    block: Dim = (32, 1, 1)
    cluster: Dim = (1, 1, 1)
    clustered: bool = False

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]


@dataclass(frozen=True)
class Clocks:
    """The passing of time: every clock read advances a thread's own time by the next of `steps`. Clocks are private
    to a thread, so that its reads depend only on its own path."""

    cycles: int = (1 << 32) - 40
    time: int = (1 << 32) - 100
    steps: tuple[int, ...] = (1,)

    def start(self, thread: int) -> int:
        """Ticks that this thread's time is ahead: threads differ."""
        return thread * 7


@dataclass(eq=False)
class Thread:
    """One thread: `key` is (block x, y, z, linear thread), `mark` is the oracle's hook. quit: it left by `exit`."""

    key: tuple[int, int, int, int]
    special: dict[str, int]
    clocks: Clocks
    on_mark: Callable[[Thread, Any, int | None, bool, int], None] | None = None
    followers: frozenset[int] = frozenset()
    elapsed: int = 0
    reads: int = 0
    barriers: Barriers = field(default_factory=Barriers)
    shared_clock: bool = False
    quit: bool = False
    uni: dict[tuple[int, int], int] = field(default_factory=dict)  # shared by the warp
    passed: Counter[int] = field(default_factory=Counter)
    votes: Counter[int] = field(default_factory=Counter)

    @property
    def linear(self) -> int:
        return self.key[3]

    @property
    def warp(self) -> int:
        """Linear thread id / 32, as kscope counts warps."""
        return self.key[3] // 32

    @property
    def lane(self) -> int:
        return self.key[3] % 32

    def tick(self) -> int:
        if self.shared_clock:
            return self.barriers.tick()
        step = self.clocks.steps[self.reads % len(self.clocks.steps)]
        self.reads += 1
        self.elapsed += step
        return self.elapsed + self.clocks.start(self.linear)

    def clock(self) -> int:
        """%clock64."""
        return self.clocks.cycles + self.tick()

    def globaltimer(self) -> int:
        """%globaltimer, ns."""
        return self.clocks.time + self.tick()

    def uniform(self, line: int, guard: int) -> None:
        """A guarded bra.uni: every lane of the warp must go the same way, each time."""
        self.passed[line] += 1
        if self.uni.setdefault((line, self.passed[line]), guard) != guard:
            raise FaultError(f"line {line}: lanes of one warp part at a bra.uni")

    def active(self) -> int:
        """%activemask: this lane, and where it follows another, a lower one."""
        return 1 << self.lane | (1 << self.lane) >> (self.lane in self.followers)

    def any(self, line: int, own: int) -> int:
        """A vote of the lanes that are active: every other time one that follows another finds that the other voted."""
        self.votes[line] += 1
        return int(own or (self.lane in self.followers and self.votes[line] % 2))

    def mark(self, mark: Any, value: int | None, held: bool, line: int) -> None:
        if self.on_mark is not None:
            self.on_mark(self, mark, value, held, line)


@dataclass(eq=False)
class Program:
    """A loaded text: `symbols` maps the names of its variables to addresses."""

    module: Module
    bodies: dict[str, ThreadBody]
    symbols: dict[str, int]


def load(text: str, memory: Memory) -> Program:
    """Parse, compile and give its symbols memory. Raises PtxError."""
    module, bodies = _compiled(text)
    symbols = {}
    for symbol in module.symbols.values():
        made = memory.allocate(symbol.name, len(symbol.data), space=symbol.space, align=max(8, symbol.align))
        made.data[:] = symbol.data
        symbols[symbol.name] = made.base
    return Program(module, bodies, symbols)


@lru_cache(maxsize=32)
def _compiled(text: str) -> tuple[Module, dict[str, ThreadBody]]:
    """One text often runs with several launches."""
    module = parse_module(text)
    return module, {name: compile_kernel(kernel) for name, kernel in module.kernels.items()}


Started = tuple[Thread, ThreadState]
Ready = tuple[Thread, ThreadState, int | None]


@dataclass
class Launch:
    """One launch of a kernel on a Program.

    blocks: the block indices to run (of a grid that may be far larger); threads: which linear threads of
    each block run (None: all). smid: from a block index to its SM. garbage: what registers hold at first.
    """

    program: Program
    memory: Memory
    kernel: str
    shape: Grid
    params: Sequence[int] = ()
    blocks: Sequence[Dim] = ((0, 0, 0),)
    threads: Sequence[int] | None = None
    smid: Callable[[Dim], int] = lambda block: 0
    grid_id: int = 1
    clocks: Clocks = field(default_factory=Clocks)
    garbage: int = 0x5A5A5A5A_DEADBEEF
    on_mark: Callable[[Thread, Any, int | None, bool, int], None] | None = None
    followers: frozenset[int] = frozenset()
    barriers: Barriers | None = None
    """Where they are given, all threads share their clock."""

    def start(self) -> list[Started]:
        """Every thread at its first instruction."""
        declared = self.program.module.kernels[self.kernel].params
        addresses = dict(self.program.symbols)
        for (name, size), value in zip(declared, self.params, strict=True):
            made = self.memory.allocate(name, size, space="param")
            made.data[:] = value.to_bytes(size, "little")
            addresses[name] = made.base
        body, started = self.program.bodies[self.kernel], []
        uni: dict[tuple[Dim, int], dict[tuple[int, int], int]] = {}
        for block in self.blocks:
            common = self._common(block)
            for linear in self.threads if self.threads is not None else range(self.shape.threads):
                thread = Thread((*block, linear), common | self._own(linear), self.clocks, self.on_mark)
                thread.followers = self.followers
                if self.barriers is not None:
                    thread.barriers, thread.shared_clock = self.barriers, True
                thread.uni = uni.setdefault((block, thread.warp), {})
                started.append((thread, body(thread, self.memory, addresses, self.garbage)))
        return started

    def _common(self, block: Dim) -> dict[str, int]:
        shape = self.shape
        special: dict[str, int] = {}
        rank = [block[i] % shape.cluster[i] for i in range(3)]
        for i, axis in enumerate("xyz"):
            special |= {
                f"%ctaid.{axis}": block[i],
                f"%nctaid.{axis}": shape.grid[i],
                f"%ntid.{axis}": shape.block[i],
                f"%clusterid.{axis}": block[i] // shape.cluster[i],
                f"%nclusterid.{axis}": shape.grid[i] // shape.cluster[i],
                f"%cluster_ctaid.{axis}": rank[i],
                f"%cluster_nctaid.{axis}": shape.cluster[i],
            }
        x, y, z = shape.cluster
        return special | {
            "%smid": self.smid(block),
            "%gridid": self.grid_id,
            "%nsmid": 132,
            "%nwarpid": 64,
            "%is_explicit_cluster": int(shape.clustered),
            "%cluster_ctarank": rank[0] + x * (rank[1] + y * rank[2]),
            "%cluster_nctarank": x * y * z,
        }

    def _own(self, linear: int) -> dict[str, int]:
        x, y, _ = self.shape.block
        return {
            "%tid.x": linear % x,
            "%tid.y": linear // x % y,
            "%tid.z": linear // (x * y),
            "%laneid": linear % 32,
            "%warpid": (linear // 32 * 5 + 3) % 64,  # the hardware's slot, which is not the warp of the block
            "%lanemask_eq": 1 << linear % 32,
            "%lanemask_lt": (1 << linear % 32) - 1,
        }


def run(threads: Iterable[Started], order: Order, seed: int = 0) -> int:
    """Run all threads to their ends, interleaved at memory accesses; returns the number of steps.

    "turns": one after the other in a drawn order; "lockstep": all together, one access each in turn;
    "random": any thread at any time.
    """
    return sum(1 for _ in steps(threads, order, seed))


def steps(threads: Iterable[Started], order: Order, seed: int = 0) -> Generator[Thread, None, None]:
    """Same as run(), a step at a time: the caller may inspect memory, or stop, between any two."""
    draw = Random(seed)
    ready: list[Ready] = [(thread, body, None) for thread, body in threads]
    draw.shuffle(ready)
    warps = _Warps([thread for thread, _, _ in ready])
    at = 0
    while ready:
        at = draw.randrange(len(ready)) if order == "random" else at % len(ready)
        thread, body, answer = ready[at]
        try:
            meeting = body.send(answer)
        except StopIteration:
            ready.pop(at)
            ready += warps.gone(thread)
        else:
            if meeting is None:
                ready[at] = (thread, body, None)
                at += order == "lockstep"
            else:
                ready.pop(at)
                ready += warps.meet(thread, body, meeting)
        yield thread
    warps.check_empty()


class _Warps:
    """Where lanes of a warp wait for one another: vote.sync and bar.warp.sync, for all lanes that are left."""

    def __init__(self, threads: Sequence[Thread]) -> None:
        self.left = Counter(self.key(thread) for thread in threads)
        self.waiting: dict[tuple[int, ...], list[tuple[Thread, ThreadState, Meeting]]] = {}

    @staticmethod
    def key(thread: Thread) -> tuple[int, ...]:
        return (*thread.key[:3], thread.warp)

    def meet(self, thread: Thread, body: ThreadState, meeting: Meeting) -> list[Ready]:
        """A lane arrives; the lanes that may go on, each with its answer."""
        self.waiting.setdefault(self.key(thread), []).append((thread, body, meeting))
        return self.release(self.key(thread))

    def gone(self, thread: Thread) -> list[Ready]:
        """A lane has exited; lanes that were waiting only for it continue."""
        self.left[self.key(thread)] -= 1
        return self.release(self.key(thread))

    def release(self, warp: tuple[int, ...]) -> list[Ready]:
        here = self.waiting.get(warp, [])
        if not here or len(here) < self.left[warp]:
            return []
        del self.waiting[warp]
        places = {(line, how) for _, _, (line, how, _) in here}
        if len(places) > 1:
            raise FaultError(f"lanes of one warp wait for one another at different places: {sorted(places)}")
        ((_, how),) = places
        values = {thread.lane: value for thread, _, (_, _, value) in here}
        ballot = sum(value << lane for lane, value in values.items())
        answer = {"any": int(ballot != 0), "all": int(all(values.values())), "ballot": ballot, "": 0}[how]
        return [(thread, body, answer) for thread, body, _ in here]

    def check_empty(self) -> None:
        assert not self.waiting, "lanes wait though every other lane of their warp is gone"
