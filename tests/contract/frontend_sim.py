"""The contract's kernels in the simulator: the definition that every other frontend is compared with."""

from __future__ import annotations

from collections.abc import Callable

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
import kscope_sim
from kscope.capture.capture import Capture
from kscope.instrument import registry
from kscope_sim import Warp

ABSENT: dict[str, str] = {}
ROLES = {"consumer": (0, 1, 2, 3), "producer": (4, 5, 6, 7)}
TURN = kscope.scope("turn")
PAIR = kscope.scope("pair")


def straight(warp: Warp, n: int) -> None:
    with kscope.region("first"):
        warp.work(40)
    with kscope.region("second"):
        warp.work(60)


def nested(warp: Warp, n: int) -> None:
    with kscope.region("outer"):
        with kscope.region("middle"):
            warp.work(5)
            with kscope.region("inner"):
                warp.work(10)
        with kscope.region("inner"):
            warp.work(20)


def loop(warp: Warp, n: int) -> None:
    with kscope.region("loop"):
        for k in range(n):
            with kscope.region("step", value=k):
                warp.work(30)


def early_exit(warp: Warp, n: int) -> None:
    with kscope.region("before"):
        warp.work(10)
    if warp.block[0] >= n:
        return
    with kscope.region("after"):
        warp.work(10)


def helper(warp: Warp, n: int) -> None:
    with kscope.region("caller"):
        item(warp)
    item(warp)


def item(warp: Warp) -> None:
    with kscope.region("item"):
        warp.work(25)


def itself(warp: Warp, n: int) -> None:
    with kscope.region("item"):
        item(warp)
        warp.work(5)


def names(warp: Warp, n: int) -> None:
    with kscope.region("two words"):
        warp.work(1)
    with kscope.region('it\'s "quoted" \\ twice'):
        warp.work(2)
    with kscope.region("100% {braces} $1 @p; // /* %r1"):
        warp.work(3)
    with kscope.region("größe 尺寸 🔬"):
        warp.work(4)
    with kscope.region("long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_name"):
        warp.work(5)


def explicit(warp: Warp, n: int) -> None:
    TURN.enter()
    for k in range(n):
        PAIR.enter(k)
        warp.work(15)
        PAIR.exit()
    TURN.exit()


def produce(warp: Warp, n: int) -> None:
    for _ in range(n):
        with kscope.region("write"):
            warp.work(50)


def consume(warp: Warp, n: int) -> None:
    with kscope.region("read", value=n):
        warp.work(70)


def coordinates(warp: Warp, n: int) -> None:
    (x, y, z), (nx, ny, _) = warp.block, warp.grid
    with kscope.region("block", value=x + nx * (y + ny * z)):
        warp.work(10)


def partial(warp: Warp, n: int) -> None:
    with kscope.region("all"):
        warp.work(10)
    warp.leave(lambda lane: 32 * warp.index + lane >= n)
    with kscope.region("rest"):
        warp.work(10)


def strategies(warp: Warp, n: int) -> None:
    with kscope.region("session"):
        with kscope.region("block", strategy=kscope.Lane0Warp0()):
            warp.work(10)
        with kscope.region("warp", strategy=kscope.Elected()):
            warp.work(10)
        with kscope.region("named", strategy=kscope.TargetWarp(0, 2)):
            warp.work(10)
        with kscope.region("lanes", strategy="all"):
            warp.work(10)


def divergent(warp: Warp, n: int) -> None:
    with kscope.region("all"):
        warp.work(10)
    with warp.where(range(n, 32)), kscope.region("half", value=n):
        warp.work(10)
    with kscope.region("rest"):
        warp.work(10)


def first(warp: Warp, n: int) -> None:
    with kscope.region("all"):
        warp.work(10)
    with warp.where(range(n, 32)), kscope.region("half", value=n, strategy=kscope.Elected(any_lane=True)):
        warp.work(10)
    with kscope.region("rest"):
        warp.work(10)


def values(warp: Warp, n: int) -> None:
    with kscope.region("i32", value=-7):
        warp.work(10)
    with kscope.region("u32", value=4_000_000_000):
        warp.work(10)
    with kscope.region("f32", value=1.5):
        warp.work(10)
    with kscope.region("run time", value=warp.block[0] - 1):
        kscope.instant("here")
        kscope.instant("here too", value=warp.block[0])
    kscope.counter("depth", 3)
    kscope.counter("depth", -1)
    kscope.counter("rate", 0.25)


def wide(warp: Warp, n: int) -> None:
    big = np.int64(n) << 33
    with kscope.region("i64", value=big - 1):
        warp.work(10)
    with kscope.region("small", value=np.int64(warp.block[0]) - 1):
        warp.work(10)
    with kscope.region("u64", value=(1 << 63) + 1):
        warp.work(10)
    kscope.counter("bytes", big)
    kscope.counter("bytes", 3)
    kscope.instant("constant", value=-(1 << 40))
    kscope.begin("key", big)
    kscope.end("key", key=big)


def constants(warp: Warp, n: int) -> None:
    with INT:
        warp.work(10)
    with FLOAT:
        warp.work(10)
    with INT8:
        warp.work(10)
    with INT16:
        warp.work(10)
    with INT32:
        warp.work(10)
    with INT64:
        warp.work(10)
    with UINT8:
        warp.work(10)
    with UINT16:
        warp.work(10)
    with UINT32:
        warp.work(10)
    with UINT64:
        warp.work(10)
    with FLOAT16:
        warp.work(10)
    with FLOAT32:
        warp.work(10)
    with FLOAT64:
        warp.work(10)


def points(warp: Warp, n: int) -> None:
    for k in range(n):
        kscope.instant("each", value=k)
        kscope.instant("once", strategy=kscope.Lane0Warp0())
        kscope.counter("left", n - k, strategy=kscope.TargetWarp(1))


def chosen(warp: Warp, n: int) -> None:
    for k in range(n):
        with kscope.region("even", value=k, when=k % 2 == 0):
            warp.work(10)
        kscope.instant("late", value=k, when=k >= 3)
        kscope.counter("left", n - k, when=n - k != 2)
    with kscope.region("never", when=False):
        warp.work(10)
    with kscope.region("always", when=True):
        warp.work(10)


def tracks(warp: Warp, n: int) -> None:
    with kscope.region("load", track="a"):
        kscope.instant("done", track="a")
        kscope.role("worker")
        kscope.begin("flight", n)
        with kscope.region("load", track="b c"):
            warp.work(1)
        with kscope.region("load"):
            warp.work(2)
        kscope.end("flight", key=n)


def words(warp: Warp, n: int) -> None:
    with kscope.region("warp", value=kscope.warp_id()):
        kscope.instant("lane", value=kscope.lane_id())
    kscope.instant("block", value=kscope.block_id())
    kscope.counter("sm", kscope.smid())


def pinned(warp: Warp, n: int) -> None:
    with kscope.region("product") as region:
        warp.work(10)
        region.pin(n * 3)


def roles(warp: Warp, n: int) -> None:
    if warp.role == "producer":
        for k in range(n):
            with kscope.region("load", value=k):
                warp.work(80)
            warp.arrive(("full", k))
    elif warp.role == "consumer":
        for k in range(n):
            with kscope.region("wait"):
                warp.wait(("full", k))
            with kscope.region("mma", value=k):
                warp.work(50)


def unmarked(warp: Warp, n: int) -> None:
    warp.work(100)


KERNELS: dict[str, Callable[[Warp, int], None]] = {
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


def forgotten(warp: Warp, n: int) -> None:
    kscope.region("load")  # refused
    warp.work(n)


def dropped(warp: Warp, n: int) -> None:
    PAIR()  # refused
    warp.work(n)


def boolean(warp: Warp, n: int) -> None:
    with BOOL:  # refused
        warp.work(n)


def numpy_boolean(warp: Warp, n: int) -> None:
    with NUMPY_BOOL:  # refused
        warp.work(n)


def kept(warp: Warp, n: int) -> None:
    region = kscope.region("load")  # noqa: F841  # refused
    warp.work(n)


def in_helper(warp: Warp, n: int) -> None:
    forgotten(warp, n)


REFUSED: dict[str, Callable[[Warp, int], None]] = {
    kernel.__name__: kernel for kernel in (forgotten, dropped, boolean, numpy_boolean, kept, in_helper)
}


def run(program: Program) -> Capture:
    """The program's recording, through the frontend and the backend alone: no session, no decoder."""
    frontend, backend = registry.frontend("sim"), registry.backend("sim")
    if program.state != "plain":
        frontend.enable(program.recording)
    backend.arm(1, program.subset, program.pool)
    try:
        if program.state == "prepared":
            backend.disarm()
        launch(program)
    finally:
        backend.disarm()
        frontend.disable()
    return Capture(1, tuple(backend.collect(wait=True)), backend.modules())


def ready(program: Program) -> Callable[[], None]:
    """A function that launches the program; nothing is compiled."""
    return lambda: launch(program)


def launch(program: Program) -> None:
    """Every launch of the program."""
    for name in program.kernels:
        kscope_sim.launch(
            (KERNELS | REFUSED)[name], program.grid, program.block, (program.n,), roles=ROLES, replays=program.replays
        )
