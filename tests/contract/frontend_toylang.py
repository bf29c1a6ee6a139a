"""The contract's kernels in toylang, the language of tests/plugin: the minimum that a third party writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from contract import plugged
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
from contract.device import no_gpu, with_stream
from contract.programs import Program

import kscope

plugged.plug()

import kscope_toylang  # noqa: E402, F401  # takes part from here on
import toylang  # noqa: E402
from toylang import Tracer, Value  # noqa: E402

NEEDS_GPU = True
FRONTEND = "toylang"
ABSENT = {"wide": "its values have 32 bits"}
TURN = kscope.scope("turn")
PAIR = kscope.scope("pair")


def straight(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("first"):
        k.store(out, 0, 1)
    with kscope.region("second"):
        k.store(out, 1, 2)


def nested(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("outer"):
        with kscope.region("middle"):
            k.store(out, 0, 1)
            with kscope.region("inner"):
                k.store(out, 1, 2)
        with kscope.region("inner"):
            k.store(out, 2, 3)


def loop(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("loop"), k.loop(n) as i, kscope.region("step", value=i):
        k.store(out, 0, i)


def early_exit(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("before"):
        k.store(out, 0, 1)
    with k.when(k.special("ctaid.x"), "ge", n):
        k.leave()
    with kscope.region("after"):
        k.store(out, 1, 2)


def helper(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("caller"):
        item(k, out)
    item(k, out)


def item(k: Tracer, out: str) -> None:
    with kscope.region("item"):
        k.store(out, 0, 1)


def itself(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("item"):
        item(k, out)
        k.store(out, 1, 2)


def names(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("two words"):
        k.store(out, 0, 1)
    with kscope.region('it\'s "quoted" \\ twice'):
        k.store(out, 1, 2)
    with kscope.region("100% {braces} $1 @p; // /* %r1"):
        k.store(out, 2, 3)
    with kscope.region("größe 尺寸 🔬"):
        k.store(out, 3, 4)
    with kscope.region("long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_name"):
        k.store(out, 4, 5)


def explicit(k: Tracer, out: str, n: Value) -> None:
    TURN.enter()
    with k.loop(n) as i:
        PAIR.enter(i)
        k.store(out, 0, i)
        PAIR.exit()
    TURN.exit()


def produce(k: Tracer, out: str, n: Value) -> None:
    with k.loop(n) as i, kscope.region("write"):
        k.store(out, 0, i)


def consume(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("read", value=n):
        k.store(out, 0, n)


def coordinates(k: Tracer, out: str, n: Value) -> None:
    x, y, z, nx, ny = (k.special(name) for name in ("ctaid.x", "ctaid.y", "ctaid.z", "nctaid.x", "nctaid.y"))
    with kscope.region("block", value=x + nx * (y + ny * z)):
        k.store(out, 0, x)


def partial(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("all"):
        k.store(out, 0, 1)
    with k.when(k.special("tid.x"), "ge", n):
        k.leave()
    with kscope.region("rest"):
        k.store(out, 1, 2)


def strategies(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("session"):
        with kscope.region("block", strategy=kscope.Lane0Warp0()):
            k.store(out, 0, 1)
        with kscope.region("warp", strategy=kscope.Elected()):
            k.store(out, 1, 2)
        with kscope.region("named", strategy=kscope.TargetWarp(0, 2)):
            k.store(out, 2, 3)
        with kscope.region("lanes", strategy="all"):
            k.store(out, 3, 4)


def divergent(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("all"):
        k.store(out, 0, 1)
    with k.when(k.special("tid.x") % 32, "ge", n), kscope.region("half", value=n):
        k.store(out, 1, 2)
    with kscope.region("rest"):
        k.store(out, 2, 3)


def first(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("all"):
        k.store(out, 0, 1)
    parted = k.when(k.special("tid.x") % 32, "ge", n)
    with parted, kscope.region("half", value=n, strategy=kscope.Elected(any_lane=True)):
        k.store(out, 1, 2)
    with kscope.region("rest"):
        k.store(out, 2, 3)


def values(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("i32", value=-7):
        k.store(out, 0, 1)
    with kscope.region("u32", value=4_000_000_000):
        k.store(out, 1, 2)
    with kscope.region("f32", value=1.5):
        k.store(out, 2, 3)
    x = k.special("ctaid.x")
    with kscope.region("run time", value=x - 1):
        kscope.instant("here")
        kscope.instant("here too", value=x)
    kscope.counter("depth", 3)
    kscope.counter("depth", -1)
    kscope.counter("rate", 0.25)


def constants(k: Tracer, out: str, n: Value) -> None:
    with INT:
        k.store(out, 0, n)
    with FLOAT:
        k.store(out, 1, n)
    with INT8:
        k.store(out, 2, n)
    with INT16:
        k.store(out, 3, n)
    with INT32:
        k.store(out, 4, n)
    with INT64:
        k.store(out, 5, n)
    with UINT8:
        k.store(out, 6, n)
    with UINT16:
        k.store(out, 7, n)
    with UINT32:
        k.store(out, 8, n)
    with UINT64:
        k.store(out, 9, n)
    with FLOAT16:
        k.store(out, 10, n)
    with FLOAT32:
        k.store(out, 11, n)
    with FLOAT64:
        k.store(out, 12, n)


def points(k: Tracer, out: str, n: Value) -> None:
    with k.loop(n) as i:
        kscope.instant("each", value=i)
        kscope.instant("once", strategy=kscope.Lane0Warp0())
        kscope.counter("left", n - i, strategy=kscope.TargetWarp(1))
        k.store(out, 0, i)


def chosen(k: Tracer, out: str, n: Value) -> None:
    with k.loop(n) as i:
        with kscope.region("even", value=i, when=(i % 2).is_("eq", 0)):
            k.store(out, 0, i)
        kscope.instant("late", value=i, when=i.is_("ge", 3))
        kscope.counter("left", n - i, when=(n - i).is_("ne", 2))
    with kscope.region("never", when=False):
        k.store(out, 1, 1)
    with kscope.region("always", when=True):
        k.store(out, 2, 2)


def tracks(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("load", track="a"):
        kscope.instant("done", track="a")
        kscope.role("worker")
        kscope.begin("flight", n)
        with kscope.region("load", track="b c"):
            k.store(out, 0, 1)
        with kscope.region("load"):
            k.store(out, 1, 2)
        kscope.end("flight", key=n)


def words(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("warp", value=kscope.warp_id()):
        kscope.instant("lane", value=kscope.lane_id())
        k.store(out, 0, 1)
    kscope.instant("block", value=kscope.block_id())
    kscope.counter("sm", kscope.smid())


def pinned(k: Tracer, out: str, n: Value) -> None:
    with kscope.region("product") as region:
        product = n * 3
        region.pin(product)
    k.store(out, 0, product)


def roles(k: Tracer, out: str, n: Value) -> None:
    # Warps 0 to 3 wait for what warps 4 to 7 load: every producer's lane 0 arrives once in each round.
    thread, full = k.special("tid.x"), k.special("ctaid.x") * 8 + 8
    with k.when(thread, "ge", 128):
        with k.loop(n) as i:
            with kscope.region("load", value=i):
                k.store(out, 1, i)
            with k.when(thread % 32, "eq", 0):
                k.increment(out, full + i)
        k.leave()
    with k.loop(n) as i:
        with kscope.region("wait"):
            k.wait(out, full + i, 4)
        with kscope.region("mma", value=i):
            k.store(out, 0, i)


def unmarked(k: Tracer, out: str, n: Value) -> None:
    k.store(out, 0, n)


KERNELS: dict[str, Any] = {
    function.__name__: toylang.kernel(function)
    for function in (
        *(straight, nested, loop, early_exit, helper, itself, names, explicit, produce, consume, coordinates, partial),
        *(strategies, divergent, first, values, constants, points, chosen, tracks, words, pinned, roles, unmarked),
    )
}

available = no_gpu


def forgotten(k: Tracer, out: str, n: Value) -> None:
    kscope.region("load")  # refused
    k.store(out, 0, n)


def dropped(k: Tracer, out: str, n: Value) -> None:
    PAIR()  # refused
    k.store(out, 0, n)


def boolean(k: Tracer, out: str, n: Value) -> None:
    with BOOL:  # refused
        k.store(out, 0, n)


def numpy_boolean(k: Tracer, out: str, n: Value) -> None:
    with NUMPY_BOOL:  # refused
        k.store(out, 0, n)


def kept(k: Tracer, out: str, n: Value) -> None:
    region = kscope.region("load")  # noqa: F841  # refused
    k.store(out, 0, n)


def in_helper(k: Tracer, out: str, n: Value) -> None:
    forgotten(k, out, n)


REFUSED: dict[str, Any] = {
    kernel.__name__: toylang.kernel(kernel) for kernel in (forgotten, dropped, boolean, numpy_boolean, kept, in_helper)
}


def ready(program: Program) -> Callable[[], None]:
    from cuda.bindings import driver

    _, device = driver.cuDeviceGet(0)
    _, context = driver.cuDevicePrimaryCtxRetain(device)
    driver.cuCtxSetCurrent(context)
    _, stream = driver.cuStreamCreate(int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    _, out = driver.cuMemAlloc(256)
    driver.cuMemsetD32(out, 0, 64)
    driver.cuCtxSynchronize()

    def launch() -> None:
        for name in program.kernels:
            KERNELS[name][program.grid, program.block, int(stream)](int(out), program.n)

    return with_stream(launch, int(stream), program.replays)


def compile(program: Program, arch: int) -> list[str]:
    return [(KERNELS | REFUSED)[name].ptx(arch) for name in program.kernels]
