"""PTX of the contract's kernels, run by the interpreter: no GPU, the whole chain from a compiler to a Capture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from contract.programs import Program
from ptxvm.host import Host, Pool, Ring
from ptxvm.machine import Clocks, Grid, Launch
from ptxvm.machine import run as run_threads

from kscope.capture import layout, metadata, wire
from kscope.capture.capture import Capture
from kscope.capture.capture_data import DeviceCapture
from kscope.capture.model import ModuleMeta

STRIPES = 4
ENOUGH = (Ring(14),) * (STRIPES + 1)
LAUNCH_NS = 100_000
_ENTRY = re.compile(r"\.entry\s+(\w+)")


def record(program: Program, texts: Sequence[str], frontend: object) -> Capture:
    """The recording of a program whose n-th kernel has the n-th text; launches follow each other, threads of one run
    in a drawn order. frontend: the module of the dialect, for what programs.py calls optional."""
    epoch = 0 if program.state == "prepared" else 1
    host = Host(Pool(_rings(program.pool)), program.subset, epoch=epoch, survive=program.recording.survive is not None)
    modules: list[ModuleMeta] = []
    launches = [(number, replay, ptx) for number, ptx in enumerate(texts) for replay in range(program.replays)]
    for when, (number, replay, ptx) in enumerate(launches):
        called = _ENTRY.search(ptx)
        assert called is not None, f"no kernel in {ptx}"
        reported = _launch(host, program, called[1], ptx, frontend, grid_id=number + 1, when=when, seed=replay)
        modules += [renamed(module, {called[1]: program.kernels[number]}) for module in reported]
    lost = sum(int(host.stripe(number)["lost"]) for number in range(STRIPES))
    return Capture(1, (DeviceCapture(0, "interpreted", host.lines(), STRIPES, lost),), tuple(modules))


def _rings(pool: int | None) -> tuple[Ring, ...]:
    """The pool of a device of 128 SMs of which a few are used: a given pool's rings share half of it."""
    if pool is None:
        return ENOUGH
    units = (pool // wire.UNIT).bit_length() - 1
    return (Ring(units - 8),) * STRIPES + (Ring(units - 1),)


def _launch(
    host: Host, program: Program, kernel: str, ptx: str, frontend: object, *, grid_id: int, when: int, seed: int
) -> Sequence[ModuleMeta]:
    loaded = host.load(ptx)
    out = host.memory.allocate("out", 256)
    nx, ny, nz = program.grid
    blocks = [(x, y, z) for z in range(nz) for y in range(ny) for x in range(nx)]
    parameters = getattr(frontend, "parameters", lambda out, n: [out, n])(out.base, program.n)
    extra = len(loaded.module.kernels[kernel].params) - len(parameters)  # Triton's scratch pointers
    launch = Launch(
        loaded,
        host.memory,
        kernel,
        Grid(program.grid, getattr(frontend, "block", lambda program: program.block)(program)),
        [*parameters, *[0] * extra],
        blocks,
        smid=lambda block: blocks.index(block) % STRIPES,
        grid_id=grid_id,
        clocks=Clocks(time=(1 << 32) - 100 + when * LAUNCH_NS),
        followers=frozenset(range(program.n + 1, 32)),  # of those that take a branch from lane n on, n is the first
    )
    host.launched(launch.shape, blocks)
    run_threads(launch.start(), "random", seed)
    if hasattr(frontend, "described"):
        described: Sequence[ModuleMeta] = frontend.described(ptx)
        return described
    if layout.META_SYMBOL not in loaded.symbols:
        return []
    return [metadata.from_json(loaded.module.symbols[layout.META_SYMBOL].data.rstrip(b"\0"))]


def renamed(module: ModuleMeta, names: dict[str, str]) -> ModuleMeta:
    """A module's metadata with its kernels renamed."""
    kernels = tuple(replace(kernel, name=names.get(kernel.name, kernel.name)) for kernel in module.kernels)
    return replace(module, kernels=kernels)
