"""Threads on the simulated machine: grids, special registers, clocks, and the scheduler.

What lives here: everything of a launch that a thread can see, and who runs when. What does not: the
kscope protocol (host.py), instructions (ops.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from .compiler import ThreadBody, compile_kernel
from .memory import Memory
from .parser import Module, parse_module

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
    """How time passes: every reading of a clock moves a thread's own time by the next of `steps`.

    Clocks are private to a thread so that what it reads depends on nothing but its own path.
    """

    cycles: int = (1 << 32) - 40
    time: int = (1 << 32) - 100
    steps: tuple[int, ...] = (1,)

    def start(self, thread: int) -> int:
        """Ticks that this thread's time is ahead: threads differ."""
        return thread * 7


@dataclass(eq=False)
class Thread:
    """One thread: `key` is (block x, y, z, linear thread), `mark` is the oracle's hook."""

    key: tuple[int, int, int, int]
    special: dict[str, int]
    clocks: Clocks
    on_mark: Callable[[Thread, Any, int | None], None] | None = None
    elapsed: int = 0
    reads: int = 0

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

    def mark(self, mark: Any, value: int | None) -> None:
        if self.on_mark is not None:
            self.on_mark(self, mark, value)


@dataclass(eq=False)
class Program:
    """A loaded text: `symbols` maps the names of its variables to addresses."""

    module: Module
    bodies: dict[str, ThreadBody]
    symbols: dict[str, int]


def load(text: str, memory: Memory) -> Program:
    """Parse, compile and give its symbols memory. Raises PtxError."""
    module = parse_module(text)
    symbols = {}
    for symbol in module.symbols.values():
        made = memory.allocate(symbol.name, len(symbol.data), space=symbol.space, align=max(8, symbol.align))
        made.data[:] = symbol.data
        symbols[symbol.name] = made.base
    return Program(module, {name: compile_kernel(kernel) for name, kernel in module.kernels.items()}, symbols)


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
    on_mark: Callable[[Thread, Any, int | None], None] | None = None

    def start(self) -> list[tuple[Thread, Generator[None, None, None]]]:
        """Every thread at its first instruction."""
        declared = self.program.module.kernels[self.kernel].params
        addresses = dict(self.program.symbols)
        for (name, size), value in zip(declared, self.params, strict=True):
            made = self.memory.allocate(name, size, space="param")
            made.data[:] = value.to_bytes(size, "little")
            addresses[name] = made.base
        body, started = self.program.bodies[self.kernel], []
        for block in self.blocks:
            common = self._common(block)
            for linear in self.threads if self.threads is not None else range(self.shape.threads):
                thread = Thread((*block, linear), common | self._own(linear), self.clocks, self.on_mark)
                started.append((thread, body(thread, self.memory, addresses, self.garbage)))
        return started

    def _common(self, block: Dim) -> dict[str, int]:
        shape, special = self.shape, {}
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


def run(threads: Iterable[tuple[Thread, Generator[None, None, None]]], order: Order, seed: int = 0) -> int:
    """Run all threads to their ends, interleaved at memory accesses; returns the number of steps.

    "turns": one after the other in a drawn order; "lockstep": all together, one access each in turn;
    "random": any thread at any time.
    """
    return sum(1 for _ in steps(threads, order, seed))


def steps(
    threads: Iterable[tuple[Thread, Generator[None, None, None]]], order: Order, seed: int = 0
) -> Generator[Thread, None, None]:
    """As run(), a step at a time: the caller may look at memory, or stop, between any two."""
    draw, alive = Random(seed), list(threads)
    draw.shuffle(alive)
    at = 0
    while alive:
        if order == "random":
            at = draw.randrange(len(alive))
        thread, body = alive[at]
        try:
            next(body)
        except StopIteration:
            alive.pop(at)
            at = at % len(alive) if alive else 0
        else:
            at = (at + 1) % len(alive) if order == "lockstep" else at
        yield thread
