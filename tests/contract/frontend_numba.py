"""The contract's kernels in Numba CUDA."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from contract.programs import Program

import kscope
from kscope import frontends
from kscope.capture import Capture

try:
    from numba import cuda
except AttributeError as error:  # a numpy that Numba does not know yet
    raise ImportError(f"numba.cuda cannot be imported: {error}") from error

from kscope_numba import points

NEEDS_GPU = True
ABSENT: dict[str, str] = {}
TURN = kscope.scope("turn")
PAIR = kscope.scope("pair")
PRODUCERS = 128
"""Threads from here on produce."""
if not points.SIMULATED:
    points.module("dispatcher").config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # of small grids


@cuda.jit
def straight(out, n):
    with kscope.region("first"):
        out[0] = 1
    with kscope.region("second"):
        out[1] = 2


@cuda.jit
def nested(out, n):
    with kscope.region("outer"):
        with kscope.region("middle"):
            out[0] = 1
            with kscope.region("inner"):
                out[1] = 2
        with kscope.region("inner"):
            out[2] = 3


@cuda.jit
def loop(out, n):
    with kscope.region("loop"):
        for k in range(n):
            with kscope.region("step", value=k):
                out[0] = k


@cuda.jit
def early_exit(out, n):
    with kscope.region("before"):
        out[0] = 1
    if cuda.blockIdx.x >= n:
        return
    with kscope.region("after"):
        out[1] = 2


@cuda.jit
def helper(out, n):
    with kscope.region("caller"):
        item(out)
    item(out)


@cuda.jit
def item(out):
    with kscope.region("item"):
        out[0] = 1


@cuda.jit
def explicit(out, n):
    TURN.enter()
    for k in range(n):
        PAIR.enter(k)
        out[0] = k
        PAIR.exit()
    TURN.exit()


@cuda.jit
def produce(out, n):
    for k in range(n):
        with kscope.region("write"):
            out[0] = k


@cuda.jit
def consume(out, n):
    with kscope.region("read", value=n):
        out[0] = n


@cuda.jit
def coordinates(out, n):
    block = cuda.blockIdx.x + cuda.gridDim.x * (cuda.blockIdx.y + cuda.gridDim.y * cuda.blockIdx.z)
    with kscope.region("block", value=block):
        out[0] = block


@cuda.jit
def partial(out, n):
    with kscope.region("all"):
        out[0] = 1
    if cuda.threadIdx.x >= n:
        return
    with kscope.region("rest"):
        out[1] = 2


@cuda.jit
def strategies(out, n):
    with kscope.region("session"):
        with kscope.region("block", strategy=kscope.Lane0Warp0()):
            out[0] = 1
        with kscope.region("warp", strategy=kscope.Elected()):
            out[1] = 2
        with kscope.region("named", strategy=kscope.TargetWarp(0, 2)):
            out[2] = 3
        with kscope.region("lanes", strategy=kscope.AllThreads()):
            out[3] = 4


@cuda.jit
def values(out, n):
    with kscope.region("i32", value=-7):
        out[0] = 1
    with kscope.region("u32", value=4_000_000_000):
        out[1] = 2
    with kscope.region("f32", value=1.5):
        out[2] = 3
    with kscope.region("run time", value=cuda.blockIdx.x - 1):
        kscope.instant("here")
        kscope.instant("here too", value=cuda.blockIdx.x)
    kscope.counter("depth", 3)
    kscope.counter("depth", -1)
    kscope.counter("rate", 0.25)


@cuda.jit
def roles(out, n):
    # Warps 0 to 3 wait for what warps 4 to 7 load: every producer's lane 0 arrives once in each round.
    full = 8 + 8 * cuda.blockIdx.x
    for k in range(n):
        if cuda.threadIdx.x >= PRODUCERS:
            with kscope.region("load", value=k):
                out[1] = k
            if cuda.threadIdx.x % 32 == 0:
                cuda.atomic.add(out, full + k, 1)
        else:
            with kscope.region("wait"):
                while cuda.atomic.add(out, full + k, 0) < 4:
                    pass
            with kscope.region("mma", value=k):
                out[0] = k


@cuda.jit
def unmarked(out, n):
    out[0] = n


KERNELS: dict[str, Any] = {
    kernel.__name__: kernel
    for kernel in (
        *(straight, nested, loop, early_exit, helper, explicit, produce, consume, coordinates, partial),
        *(strategies, values, roles, unmarked),
    )
}


def available() -> str | None:
    return None if cuda.is_available() else "needs an NVIDIA GPU"


def run(program: Program, kernels: dict[str, Any] = KERNELS) -> Capture:
    """Prepared and launched once before the session, so that a graph can be captured."""
    recording, sampling = program.recording, program.sampling
    compiled = {name: getattr(recording, name) for name in ("strategy", "records", "fill", "clock", "live")}
    stream = cuda.stream()

    def launch(out: Any) -> None:
        for name in program.kernels:
            kernels[name][program.grid, program.block, stream](out, np.int32(program.n))

    kscope.enable(**compiled)
    try:
        launch(cuda.to_device(np.zeros(64, np.int32), stream=stream))
        out = cuda.to_device(np.zeros(64, np.int32), stream=stream)
        stream.synchronize()
        graph = _captured(lambda: launch(out), stream) if program.replays > 1 else None
        with kscope.profile(**compiled, blocks=sampling.blocks, warps=sampling.warps) as prof:
            for _ in range(program.replays):
                if graph is None:
                    launch(out)
                else:
                    _driver().cuGraphLaunch(graph, stream.handle)
            stream.synchronize()
    finally:
        kscope.disable()
    return prof.capture


def _driver() -> Any:
    return points.module("cudadrv.driver").driver


def _captured(launch: Any, stream: Any) -> Any:
    """A graph of the launches, by the driver: Numba has no word for it."""
    mode = points.module("cudadrv.driver").binding.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    _driver().cuStreamBeginCapture(stream.handle, mode)
    launch()
    return _driver().cuGraphInstantiate(_driver().cuStreamEndCapture(stream.handle), 0)


def compile(program: Program, arch: int) -> list[str]:
    """The program's kernels as PTX with every mark lowered, without a GPU."""
    frontend = frontends.frontend("numba")
    frontend.enable(program.recording)
    try:
        made = {name: ptx(KERNELS[name], name, (arch // 10, arch % 10)) for name in program.kernels}
        return [made[name] for name in program.kernels]
    finally:
        frontend.disable()


def ptx(kernel: Any, name: str, cc: tuple[int, int], lto: bool = False) -> str:
    """A kernel's PTX, with a readable name; after link-time optimization where that is on."""
    from contract.numba_offline import built  # needs NVVM, and no GPU

    library = built(kernel, "void(int32[::1], int32)", cc, lto=lto)
    text = library.get_lto_ptx(cc=cc) if lto else library.get_asm_str(cc=cc)
    return re.sub(re.escape(library._entry_name), name, text)
