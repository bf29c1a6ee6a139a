"""Launching: a grid of blocks over the SMs of a simulated machine, in waves."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kscope.errors import UsageError
from kscope.instrument import registry
from kscope.instrument.launch_lines import LINES
from kscope.marks.strategies import MAX_WARPS
from kscope.util.json_values import clean

from .backend import SimBackend
from .block import Block
from .machine import Machine
from .protocol import Thread
from .warp import Warp, current

LAUNCH_NS = 2000
"""Simulated time between the end of one launch and the start of the next."""

Dim = int | tuple[int, ...]
Role = Mapping[str, Sequence[int]]


def launch(
    kernel: Callable[..., object], grid: Dim = 1, block: Dim = 32, args: tuple[Any, ...] = (), *,
    sms: int = 4, seed: int = 0, roles: Role | None = None, replays: int = 1, machine: Machine | None = None,
    hangs: bool = False,
) -> None:  # fmt: skip
    """Run ``kernel(warp, *args)`` once per warp of the grid. It records inside ``kscope.profile()``.

    Args:
        kernel: a function of a Warp and `args`.
        grid: blocks, one to three numbers.
        block: threads of a block, one to three numbers.
        args: the kernel's further arguments.
        sms: number of SMs of the simulated GPU.
        seed: fixes random numbers; that of a session's first launch, clock offsets as well.
        roles: role -> its warps of a block, as in ``{"producer": (0,), "consumer": (1, 2)}``.
        replays: number of runs under one grid id, as of a captured CUDA graph.
        machine: a whole Machine, instead of `sms` and `seed`.
        hangs: warps that wait for each other hang, as on a GPU; by default that is an error.

    Raises:
        UsageError: no GPU has this geometry, a block hangs without `hangs`, or the call is inside a kernel.
        PairingError: marks do not pair.
        Exception: raised by the kernel.
    """
    if current() is not None:
        raise UsageError("kscope_sim.launch() inside a kernel: launch from the host")
    shape, threads = _dims("grid", grid, (2**31 - 1, 65535, 65535)), _dims("block", block, (1024, 1024, 64))
    if (size := threads[0] * threads[1] * threads[2]) > 32 * MAX_WARPS:
        raise UsageError(f"block={block!r}: has {size} threads, expected at most {32 * MAX_WARPS}")
    named = {warp: role for role, warps in (roles or {}).items() for warp in warps}
    host = registry.backend("sim")
    assert isinstance(host, SimBackend)
    machine = host.device.running_on(machine or Machine(sms, seed))
    progress = _Progress(machine, host.device.now_ns)
    module = host.module(_name(kernel), kernel)  # refuses a kernel with a mistake
    grid_id = host.device.begin(machine, progress.ns)
    if replays == 1 and module is not None:
        LINES.add(module.id)
    try:
        for replay in range(replays):
            _run(host, progress, kernel, args, (shape, threads, named), (grid_id, replay), hangs)
    finally:
        host.device.end(grid_id)


@dataclass
class _Progress:
    """Progress of a launch: the latest end of its blocks, ns, and the block that runs, on SM `sm`."""

    machine: Machine
    last: float
    sm: int = 0
    block: Block = field(default_factory=Block)

    def ns(self) -> float:
        return max([self.last, *(self.machine.ns(self.sm, strand.now) for strand in self.block.strands)])


def _run(
    host: SimBackend, progress: _Progress, kernel: Callable[..., object], args: tuple[Any, ...],
    geometry: tuple[tuple[int, int, int], tuple[int, int, int], dict[int, str]], launch: tuple[int, int], hangs: bool,
) -> None:  # fmt: skip
    (nx, ny, nz), threads, roles = geometry
    name = _name(kernel)
    module = host.module(name, kernel)
    warps = -(-threads[0] * threads[1] * threads[2] // 32)
    device, machine = host.device, progress.machine
    start = progress.last + LAUNCH_NS
    # the first free SM takes the next block; of several, the lowest
    free = [(start, sm) for sm in range(machine.sms) for _ in range(machine.resident)]
    progress.last = start
    for index in range(nx * ny * nz):
        began, sm = heapq.heappop(free)
        ctaid = index % nx, index // nx % ny, index // (nx * ny)
        group = Block(hangs)
        for number in range(warps):
            thread = Thread(
                module.id if module else 0, module.log2_records if module else 0, module.flags if module else 0,
                launch[0], (nx, ny, nz), threads, ctaid, number, 0, sm,
            )  # fmt: skip
            random = Random(f"{machine.seed} {name} {launch} {index} {number}")
            warp = Warp(
                thread, name, machine, group, device.memory if module else None, module,
                roles.get(number), random, machine.cycles(sm, began),
                host.sampler.warp(name, module) if host.sampler else None,
            )  # fmt: skip
            warp.strand.body = _body(warp, kernel, args)
            group.strands.append(warp.strand)
        progress.sm, progress.block = sm, group
        group.run()
        heapq.heappush(free, (max(machine.ns(sm, strand.now) for strand in group.strands), sm))
        progress.last = progress.ns()
        device.drain_if_half_full()


def _body(warp: Warp, kernel: Callable[..., object], args: tuple[Any, ...]) -> Callable[[], None]:
    return lambda: warp.run(kernel, args)


def _name(kernel: Callable[..., object]) -> str:
    return clean(str(getattr(kernel, "__name__", type(kernel).__name__)))


def _dims(what: str, given: Dim, most: tuple[int, int, int]) -> tuple[int, int, int]:
    dims = (given,) if isinstance(given, int) else tuple(given)
    full = (*dims, 1, 1)[:3]
    fits = len(dims) in (1, 2, 3) and all(isinstance(d, int) and 1 <= d <= m for d, m in zip(full, most, strict=True))
    if not fits:
        raise UsageError(f"{what}={given!r}: expected one to three numbers from 1 to {most}")
    return full[0], full[1], full[2]
