"""The contract's kernels in CuTe DSL, which has no early return from a kernel: warps skip the rest instead."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")

import cutlass
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
from contract.device import no_gpu, with_torch
from contract.programs import Program
from cuda.bindings import driver
from cutlass import cute
from cutlass.base_dsl import compiler
from cutlass.cute.runtime import make_fake_compact_tensor

import kscope

NEEDS_GPU = True
FRONTEND = "cute"
ABSENT: dict[str, str] = {}
TURN = kscope.scope("turn")
PAIR = kscope.scope("pair")


@cute.kernel
def straight(out: cute.Tensor, n: cutlass.Int32):
    with kscope.region("first"):
        out[0] = 1
    with kscope.region("second"):
        out[1] = 2


@cute.kernel
def nested(out: cute.Tensor, n: cutlass.Int32):
    with kscope.region("outer"):
        with kscope.region("middle"):
            out[0] = 1
            with kscope.region("inner"):
                out[1] = 2
        with kscope.region("inner"):
            out[2] = 3


@cute.kernel
def loop(out: cute.Tensor, n: cutlass.Int32):
    with kscope.region("loop"):
        for k in range(n):
            with kscope.region("step", value=k):
                out[0] = k


@cute.kernel
def early_exit(out: cute.Tensor, n: cutlass.Int32):
    x, _, _ = cute.arch.block_idx()
    with kscope.region("before"):
        out[0] = 1
    if x < n:
        with kscope.region("after"):
            out[1] = 2


@cute.kernel
def helper(out: cute.Tensor, n: cutlass.Int32):
    with kscope.region("caller"):
        item(out)
    item(out)


@cute.jit
def item(out: cute.Tensor):
    with kscope.region("item"):
        out[0] = 1


@cute.kernel
def itself(out: cute.Tensor, n: cutlass.Int32):
    with kscope.region("item"):
        item(out)
        out[1] = 2


@cute.kernel
def names(out: cute.Tensor, n: cutlass.Int32):
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


@cute.kernel
def explicit(out: cute.Tensor, n: cutlass.Int32):
    TURN.enter()
    for k in range(n):
        PAIR.enter(k)
        out[0] = k
        PAIR.exit()
    TURN.exit()


@cute.kernel
def produce(out: cute.Tensor, n: cutlass.Int32):
    for k in range(n):
        with kscope.region("write"):
            out[0] = k


@cute.kernel
def consume(out: cute.Tensor, n: cutlass.Int32):
    with kscope.region("read", value=n):
        out[0] = n


@cute.kernel
def coordinates(out: cute.Tensor, n: cutlass.Int32):
    x, y, z = cute.arch.block_idx()
    nx, ny, _ = cute.arch.grid_dim()
    with kscope.region("block", value=x + nx * (y + ny * z)):
        out[0] = x


@cute.kernel
def partial(out: cute.Tensor, n: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    with kscope.region("all"):
        out[0] = 1
    if thread < n:
        with kscope.region("rest"):
            out[1] = 2


@cute.kernel
def strategies(out: cute.Tensor, n: cutlass.Int32):
    with kscope.region("session"):
        with kscope.region("block", strategy=kscope.Lane0Warp0()):
            out[0] = 1
        with kscope.region("warp", strategy=kscope.Elected()):
            out[1] = 2
        with kscope.region("named", strategy=kscope.TargetWarp(0, 2)):
            out[2] = 3
        with kscope.region("lanes", strategy="all"):
            out[3] = 4


@cute.kernel
def divergent(out: cute.Tensor, n: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    with kscope.region("all"):
        out[0] = 1
    if thread % 32 >= n:
        with kscope.region("half", value=n):
            out[1] = 2
    with kscope.region("rest"):
        out[2] = 3


@cute.kernel
def first(out: cute.Tensor, n: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    with kscope.region("all"):
        out[0] = 1
    if thread % 32 >= n:
        with kscope.region("half", value=n, strategy=kscope.Elected(any_lane=True)):
            out[1] = 2
    with kscope.region("rest"):
        out[2] = 3


@cute.kernel
def values(out: cute.Tensor, n: cutlass.Int32):
    x, _, _ = cute.arch.block_idx()
    with kscope.region("i32", value=-7):
        out[0] = 1
    with kscope.region("u32", value=4_000_000_000):
        out[1] = 2
    with kscope.region("f32", value=1.5):
        out[2] = 3
    with kscope.region("run time", value=x - 1):
        kscope.instant("here")
        kscope.instant("here too", value=x)
    kscope.counter("depth", 3)
    kscope.counter("depth", -1)
    kscope.counter("rate", 0.25)


@cute.kernel
def wide(out: cute.Tensor, n: cutlass.Int32):
    x, _, _ = cute.arch.block_idx()
    big = cutlass.Int64(n) << 33
    with kscope.region("i64", value=big - 1):
        out[0] = n
    with kscope.region("small", value=cutlass.Int64(x) - 1):
        out[1] = n
    with kscope.region("u64", value=(1 << 63) + 1):
        out[2] = n
    kscope.counter("bytes", big)
    kscope.counter("bytes", 3)
    kscope.instant("constant", value=-(1 << 40))
    kscope.begin("key", big)
    kscope.end("key", key=big)


@cute.kernel
def constants(out: cute.Tensor, n: cutlass.Int32):
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


@cute.kernel
def points(out: cute.Tensor, n: cutlass.Int32):
    for k in range(n):
        kscope.instant("each", value=k)
        kscope.instant("once", strategy=kscope.Lane0Warp0())
        kscope.counter("left", n - k, strategy=kscope.TargetWarp(1))
        out[0] = k


@cute.kernel
def chosen(out: cute.Tensor, n: cutlass.Int32):
    for k in range(n):
        with kscope.region("even", value=k, when=k % 2 == 0):
            out[0] = k
        kscope.instant("late", value=k, when=k >= 3)
        kscope.counter("left", n - k, when=n - k != 2)
    with kscope.region("never", when=False):
        out[1] = 1
    with kscope.region("always", when=True):
        out[2] = 2


@cute.kernel
def tracks(out: cute.Tensor, n: cutlass.Int32):
    with kscope.region("load", track="a"):
        kscope.instant("done", track="a")
        kscope.role("worker")
        kscope.begin("flight", n)
        with kscope.region("load", track="b c"):
            out[0] = 1
        with kscope.region("load"):
            out[1] = 2
        kscope.end("flight", key=n)


@cute.kernel
def words(out: cute.Tensor, n: cutlass.Int32):
    with kscope.region("warp", value=kscope.warp_id()):
        kscope.instant("lane", value=kscope.lane_id())
        out[0] = 1
    kscope.instant("block", value=kscope.block_id())
    kscope.counter("sm", kscope.smid())


@cute.kernel
def pinned(out: cute.Tensor, n: cutlass.Int32):
    with kscope.region("product") as region:
        product = n * 3
        region.pin(product)
    out[0] = product


@cute.kernel
def roles(out: cute.Tensor, n: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    if thread < 128:
        for k in range(n):
            with kscope.region("wait"):
                out[0] = k
            with kscope.region("mma", value=k):
                out[1] = k
    else:
        for k in range(n):
            with kscope.region("load", value=k):
                out[2] = k


@cute.kernel
def unmarked(out: cute.Tensor, n: cutlass.Int32):
    out[0] = n


KERNELS: dict[str, Callable[..., Any]] = {
    "straight": straight, "nested": nested, "loop": loop, "early_exit": early_exit, "helper": helper, "itself": itself,
    "names": names, "explicit": explicit, "produce": produce, "consume": consume, "coordinates": coordinates,
    "partial": partial, "strategies": strategies, "divergent": divergent, "first": first, "values": values,
    "wide": wide,
    "constants": constants,
    "points": points, "chosen": chosen, "tracks": tracks, "words": words, "pinned": pinned, "roles": roles,
    "unmarked": unmarked,
}  # fmt: skip


@cute.kernel
def forgotten(out: cute.Tensor, n: cutlass.Int32):
    kscope.region("load")  # refused
    out[0] = n


@cute.kernel
def dropped(out: cute.Tensor, n: cutlass.Int32):
    PAIR()  # refused
    out[0] = n


@cute.kernel
def boolean(out: cute.Tensor, n: cutlass.Int32):
    with BOOL:  # refused
        out[0] = n


@cute.kernel
def numpy_boolean(out: cute.Tensor, n: cutlass.Int32):
    with NUMPY_BOOL:  # refused
        out[0] = n


@cute.kernel
def kept(out: cute.Tensor, n: cutlass.Int32):
    region = kscope.region("load")  # noqa: F841  # refused
    out[0] = n


def forgets(out):
    kscope.region("load")  # refused
    out[0] = 1


@cute.kernel
def in_helper(out: cute.Tensor, n: cutlass.Int32):
    forgets(out)


REFUSED: dict[str, Callable[..., Any]] = {
    "forgotten": forgotten,
    "dropped": dropped,
    "boolean": boolean,
    "numpy_boolean": numpy_boolean,
    "kept": kept,
    "in_helper": in_helper,
}


def launcher(program: Program, name: str) -> Any:
    """The host function for one kernel of a program; its grid and block are compile-time constants."""
    kernel, grid, block = (KERNELS | REFUSED)[name], list(program.grid), list(program.block)

    @cute.jit
    def launch(out: cute.Tensor, n: cutlass.Int32, stream: Any):
        kernel(out, n).launch(grid=grid, block=block, stream=stream)

    return launch


available = no_gpu


def ready(program: Program) -> Callable[[], None]:
    import torch
    from cutlass.cute.runtime import from_dlpack

    tensor, n = from_dlpack(torch.zeros(64, device="cuda", dtype=torch.int32)), cutlass.Int32(program.n)

    def stream() -> Any:
        return driver.CUstream(torch.cuda.current_stream().cuda_stream)

    made = {name: cute.compile(launcher(program, name), tensor, n, stream()) for name in program.kernels}

    def launch() -> None:
        for name in program.kernels:
            made[name](tensor, n, stream())

    return with_torch(launch, program.replays)


def compile(program: Program, arch: int) -> list[str]:
    return [ptx(launcher(program, name), program.n, arch) for name in program.kernels]


def ptx(launch: Any, n: int, arch: int) -> str:
    """Parts of a compilation that CuTe keeps, without a driver (4.4 needs one)."""
    suffix = "a" if arch >= 90 else ""
    with tempfile.TemporaryDirectory() as folder:
        options = f"--keep-ptx --dump-dir {folder} --gpu-arch sm_{arch}{suffix}"
        tensor = make_fake_compact_tensor(cutlass.Int32, (64,))
        with mock.patch.object(compiler.Compiler, "_check_cuda_dependencies_once", create=True):
            made = cute.compile(launch, tensor, cutlass.Int32(n), driver.CUstream(0), options=options)
    return str(made.__ptx__).rstrip("\0")
