"""The contract's kernels in Numba CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from contract.constants import (
    BOOL,
    FLOAT,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT,
    INT8,
    INT16,
    INT32,
    INT64,
    NUMPY_BOOL,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
)
from contract.programs import Program

import kscope

try:
    from numba import cuda
except AttributeError as error:  # a numpy that Numba does not support yet
    raise ImportError(f"numba.cuda cannot be imported: {error}") from error

import kscope_numba
from kscope_numba import hook_points as points_of

NEEDS_GPU = True
FRONTEND = "numba"
ABSENT: dict[str, str] = {}
TURN = kscope.scope("turn")
PAIR = kscope.scope("pair")
LENGTH = 64
PRODUCERS = 128
"""Threads from here on produce."""
if not points_of.SIMULATED:
    points_of.module("dispatcher").config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # of small grids


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
def itself(out, n):
    with kscope.region("item"):
        item(out)
        out[1] = 2


@cuda.jit
def names(out, n):
    with kscope.region("two words"):
        out[0] = 1
    with kscope.region('it\'s "quoted" \\ twice'):
        out[1] = 2
    with kscope.region("100% {braces} $1 @p; // /* %r1"):
        out[2] = 3
    with kscope.region("größe 尺寸 🔬"):
        out[3] = 4
    with kscope.region("long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_name"):
        out[4] = 5


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
        with kscope.region("lanes", strategy="all"):
            out[3] = 4


@cuda.jit
def divergent(out, n):
    with kscope.region("all"):
        out[0] = 1
    if cuda.threadIdx.x % 32 >= n:
        with kscope.region("half", value=n):
            out[1] = 2
    with kscope.region("rest"):
        out[2] = 3


@cuda.jit
def first(out, n):
    with kscope.region("all"):
        out[0] = 1
    if cuda.threadIdx.x % 32 >= n:
        with kscope.region("half", value=n, strategy=kscope.Elected(any_lane=True)):
            out[1] = 2
    with kscope.region("rest"):
        out[2] = 3


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
def wide(out, n):
    big = np.int64(n) << 33
    with kscope.region("i64", value=big - 1):
        out[0] = n
    with kscope.region("small", value=np.int64(cuda.blockIdx.x) - 1):
        out[1] = n
    with kscope.region("u64", value=(1 << 63) + 1):
        out[2] = n
    kscope.counter("bytes", big)
    kscope.counter("bytes", 3)
    kscope.instant("constant", value=-(1 << 40))
    kscope.begin("key", big)
    kscope.end("key", key=big)


@cuda.jit
def constants(out, n):
    with INT:
        out[0] = n
    with FLOAT:
        out[1] = n
    with INT8:
        out[2] = n
    with INT16:
        out[3] = n
    with INT32:
        out[4] = n
    with INT64:
        out[5] = n
    with UINT8:
        out[6] = n
    with UINT16:
        out[7] = n
    with UINT32:
        out[8] = n
    with UINT64:
        out[9] = n
    with FLOAT16:
        out[10] = n
    with FLOAT32:
        out[11] = n
    with FLOAT64:
        out[12] = n


@cuda.jit
def points(out, n):
    for k in range(n):
        kscope.instant("each", value=k)
        kscope.instant("once", strategy=kscope.Lane0Warp0())
        kscope.counter("left", n - k, strategy=kscope.TargetWarp(1))
        out[0] = k


@cuda.jit
def chosen(out, n):
    for k in range(n):
        with kscope.region("even", value=k, when=k % 2 == 0):
            out[0] = k
        kscope.instant("late", value=k, when=k >= 3)
        kscope.counter("left", n - k, when=n - k != 2)
    with kscope.region("never", when=False):
        out[1] = 1
    with kscope.region("always", when=True):
        out[2] = 2


@cuda.jit
def tracks(out, n):
    with kscope.region("load", track="a"):
        kscope.instant("done", track="a")
        kscope.role("worker")
        kscope.begin("flight", n)
        with kscope.region("load", track="b c"):
            out[0] = 1
        with kscope.region("load"):
            out[1] = 2
        kscope.end("flight", key=n)


@cuda.jit
def words(out, n):
    with kscope.region("warp", value=kscope.warp_id()):
        kscope.instant("lane", value=kscope.lane_id())
        out[0] = 1
    kscope.instant("block", value=kscope.block_id())
    kscope.counter("sm", kscope.smid())


@cuda.jit
def pinned(out, n):
    with kscope.region("product") as region:
        product = n * 3
        region.pin(product)
    out[0] = product


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
        *(straight, nested, loop, early_exit, helper, itself, names, explicit, produce, consume, coordinates, partial),
        *(
            strategies,
            divergent,
            first,
            values,
            wide,
            constants,
            points,
            chosen,
            tracks,
            words,
            pinned,
            roles,
            unmarked,
        ),
    )
}


def taught(program: Program) -> None:
    """Numba must recognize marks in kernels compiled before the first enable()."""
    if program.state == "plain" and not points_of.SIMULATED:
        kscope_numba.teach()


@cuda.jit
def forgotten(out, n):
    kscope.region("load")  # refused
    out[0] = n


@cuda.jit
def dropped(out, n):
    PAIR()  # refused
    out[0] = n


@cuda.jit
def boolean(out, n):
    with BOOL:  # refused
        out[0] = n


@cuda.jit
def numpy_boolean(out, n):
    with NUMPY_BOOL:  # refused
        out[0] = n


@cuda.jit
def kept(out, n):
    region = kscope.region("load")  # noqa: F841  # refused
    out[0] = n


@cuda.jit
def in_helper(out, n):
    forgotten(out, n)


REFUSED = {kernel.__name__: kernel for kernel in (forgotten, dropped, boolean, numpy_boolean, kept, in_helper)}


def available() -> str | None:
    return None if cuda.is_available() else "needs an NVIDIA GPU"


def ready(program: Program) -> Callable[[], None]:
    taught(program)
    stream = cuda.stream()

    def launch(out: Any) -> None:
        for name in program.kernels:
            KERNELS[name][program.grid, program.block, stream](out, np.int32(program.n))

    launch(cuda.to_device(np.zeros(64, np.int32), stream=stream))
    out = cuda.to_device(np.zeros(64, np.int32), stream=stream)
    stream.synchronize()
    graph = _captured(lambda: launch(out), stream) if program.replays > 1 else None

    def go() -> None:
        for _ in range(program.replays):
            if graph is None:
                launch(out)
            else:
                _driver().cuGraphLaunch(graph, stream.handle)
        stream.synchronize()

    return go


def _driver() -> Any:
    return points_of.module("cudadrv.driver").driver


def _captured(launch: Any, stream: Any) -> Any:
    """A graph of the launches through the driver API, because Numba has none."""
    mode = points_of.module("cudadrv.driver").binding.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    _driver().cuStreamBeginCapture(stream.handle, mode)
    launch()
    return _driver().cuGraphInstantiate(_driver().cuStreamEndCapture(stream.handle), 0)


def compile(program: Program, arch: int, lto: bool = False) -> list[str]:
    """lto: as after link-time optimization."""
    from contract.numba_offline import built  # needs NVVM, and no GPU

    taught(program)
    cc = arch // 10, arch % 10
    libraries = {
        name: built((KERNELS | REFUSED)[name], "void(int32[::1], int32)", cc, lto=lto) for name in program.kernels
    }
    texts = {
        name: library.get_lto_ptx(cc=cc) if lto else library.get_asm_str(cc=cc) for name, library in libraries.items()
    }
    return [texts[name] for name in program.kernels]


def assemble(program: Program, arch: int) -> None:
    """Compile to cubins, with link-time optimization."""
    from contract import numba_offline

    cc = arch // 10, arch % 10
    with numba_offline.device(cc):
        for name in program.kernels:
            assert numba_offline.built(KERNELS[name], "void(int32[::1], int32)", cc, lto=True).get_cubin(cc=cc).code


def parameters(out: int, n: int) -> list[int]:
    """An array is seven: owner, parent, items, bytes of one, address, shape, stride."""
    return [0, 0, LENGTH, 4, out, LENGTH, 4, n]
