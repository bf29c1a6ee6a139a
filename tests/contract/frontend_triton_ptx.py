"""The PTX that Triton and kscope emit for the contract's kernels, run by the interpreter: no GPU, the whole chain.

What lives here: from PTX to a Capture. What does not: the kernels (frontend_triton.py), instructions (tests/ptxvm).
"""

from __future__ import annotations

import numpy as np
from contract.frontend_triton import ABSENT, KERNELS, compile
from contract.programs import Program
from ptxvm.host import Host, Pool, Ring
from ptxvm.machine import Clocks, Grid, Launch
from ptxvm.machine import run as run_threads

from kscope import layout, meta
from kscope.capture import Capture, DeviceCapture, ModuleMeta

__all__ = ["ABSENT", "KERNELS", "available", "run"]

ARCH = 90
STRIPES = 4
LAUNCH_NS = 100_000


def available() -> str | None:
    return None


def run(program: Program) -> Capture:
    """The program's recording; launches follow each other, threads of one run in a drawn order."""
    host = Host(Pool((Ring(14),) * (STRIPES + 1)), program.sampling, epoch=1)
    modules: list[ModuleMeta] = []
    launches = [
        (number, replay, ptx) for number, ptx in enumerate(compile(program, ARCH)) for replay in range(program.replays)
    ]
    for when, (number, replay, ptx) in enumerate(launches):
        modules += _launch(host, program, program.kernels[number], ptx, grid_id=number + 1, when=when, seed=replay)
    lines = np.concatenate([np.frombuffer(bytes(ring.data), np.uint32) for ring in host.rings]).reshape(-1, 16)
    lost = sum(int(host.stripe(number)["lost"]) for number in range(STRIPES))
    return Capture(1, (DeviceCapture(0, "interpreted", lines, STRIPES, lost),), tuple(modules))


def _launch(
    host: Host, program: Program, kernel: str, ptx: str, *, grid_id: int, when: int, seed: int
) -> list[ModuleMeta]:
    loaded = host.load(ptx)
    out = host.memory.allocate("out", 256)
    (nx, ny, nz), threads = program.grid, program.block[0] * program.block[1] * program.block[2]
    blocks = [(x, y, z) for z in range(nz) for y in range(ny) for x in range(nx)]
    extra = len(loaded.module.kernels[kernel].params) - 2  # Triton's scratch pointers
    launch = Launch(
        loaded,
        host.memory,
        kernel,
        Grid(program.grid, (threads, 1, 1)),
        [out.base, program.n, *[0] * extra],
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
