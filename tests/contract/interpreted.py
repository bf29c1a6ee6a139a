"""PTX of the contract's kernels, run by the interpreter: no GPU, the whole chain from a compiler to a Capture.

What lives here: from PTX to a Capture. What does not: compilers (frontend_*_ptx.py), instructions (tests/ptxvm).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from contract.programs import Program
from ptxvm.host import Host, Pool, Ring
from ptxvm.machine import Clocks, Grid, Launch
from ptxvm.machine import run as run_threads

from kscope import layout, meta
from kscope.capture import Capture, DeviceCapture, ModuleMeta

STRIPES = 4
LAUNCH_NS = 100_000


def record(
    program: Program,
    texts: list[str],
    block: tuple[int, int, int],
    names: dict[str, str] | None = None,
    arguments: Callable[[int, int], list[int]] | None = None,
) -> Capture:
    """The recording of a program whose n-th kernel has the n-th text; launches follow each other, threads of one run
    in a drawn order. names: what kernels are called in the texts, where not as in the contract. arguments: what a
    kernel takes for the address of `out`, and n; else these two."""
    names = names or {}
    host = Host(Pool((Ring(14),) * (STRIPES + 1)), program.sampling, epoch=1)
    modules: list[ModuleMeta] = []
    launches = [(number, replay, ptx) for number, ptx in enumerate(texts) for replay in range(program.replays)]
    for when, (number, replay, ptx) in enumerate(launches):
        kernel = program.kernels[number]
        called = names.get(kernel, kernel)
        told = _launch(host, program, block, called, ptx, arguments, grid_id=number + 1, when=when, seed=replay)
        modules += [renamed(module, {theirs: ours for ours, theirs in names.items()}) for module in told]
    lines = np.concatenate([np.frombuffer(bytes(ring.data), np.uint32) for ring in host.rings]).reshape(-1, 16)
    lost = sum(int(host.stripe(number)["lost"]) for number in range(STRIPES))
    return Capture(1, (DeviceCapture(0, "interpreted", lines, STRIPES, lost),), tuple(modules))


def _launch(
    host: Host,
    program: Program,
    block: tuple[int, int, int],
    kernel: str,
    ptx: str,
    arguments: Callable[[int, int], list[int]] | None,
    *,
    grid_id: int,
    when: int,
    seed: int,
) -> list[ModuleMeta]:
    loaded = host.load(ptx)
    out = host.memory.allocate("out", 256)
    nx, ny, nz = program.grid
    blocks = [(x, y, z) for z in range(nz) for y in range(ny) for x in range(nx)]
    extra = len(loaded.module.kernels[kernel].params) - 2  # Triton's scratch pointers
    launch = Launch(
        loaded,
        host.memory,
        kernel,
        Grid(program.grid, block),
        arguments(out.base, program.n) if arguments else [out.base, program.n, *[0] * extra],
        blocks,
        smid=lambda block: blocks.index(block) % STRIPES,
        grid_id=grid_id,
        clocks=Clocks(time=(1 << 32) - 100 + when * LAUNCH_NS),
    )
    run_threads(launch.start(), "random", seed)
    if layout.META_SYMBOL not in loaded.symbols:
        return []
    text = loaded.module.symbols[layout.META_SYMBOL].data.rstrip(b"\0")
    return [meta.from_json(text)]


def renamed(module: ModuleMeta, names: dict[str, str]) -> ModuleMeta:
    """What a module says of itself, with other names of its kernels."""
    kernels = tuple(replace(kernel, name=names.get(kernel.name, kernel.name)) for kernel in module.kernels)
    return replace(module, kernels=kernels)
