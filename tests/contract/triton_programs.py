"""The contract's kernels in the language that Triton and Gluon share: one text, compiled by each."""

from __future__ import annotations

from typing import Any

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

import kscope

ABSENT = dict.fromkeys(("partial", "divergent", "first"), "a block is made of whole warps, and its threads do not part")
TURN = kscope.scope("turn")
PAIR = kscope.scope("pair")


def kernels(jit: Any, tl: Any) -> dict[str, Any]:
    """jit: @triton.jit or @gluon.jit. tl: the language's module, by the name that the kernels use."""

    @jit
    def straight(out, n):
        with kscope.region("first"):
            tl.store(out, 1)
        with kscope.region("second"):
            tl.store(out, 2)

    @jit
    def nested(out, n):
        with kscope.region("outer"):
            with kscope.region("middle"):
                tl.store(out, 1)
                with kscope.region("inner"):
                    tl.store(out, 2)
            with kscope.region("inner"):
                tl.store(out, 3)

    @jit
    def loop(out, n):
        with kscope.region("loop"):
            for k in range(n):
                with kscope.region("step", value=k):
                    tl.store(out, k)

    @jit
    def early_exit(out, n):
        with kscope.region("before"):
            tl.store(out, 1)
        if tl.program_id(0) >= n:
            return
        with kscope.region("after"):
            tl.store(out, 2)

    @jit
    def helper(out, n):
        with kscope.region("caller"):
            item(out)
        item(out)

    @jit
    def item(out):
        with kscope.region("item"):
            tl.store(out, 1)

    @jit
    def itself(out, n):
        with kscope.region("item"):
            item(out)
            tl.store(out, 2)

    @jit
    def names(out, n):
        with kscope.region("two words"):
            tl.store(out, 1)
        with kscope.region('it\'s "quoted" \\ twice'):
            tl.store(out, 2)
        with kscope.region("100% {braces} $1 @p; // /* %r1"):
            tl.store(out, 3)
        with kscope.region("größe 尺寸 🔬"):
            tl.store(out, 4)
        with kscope.region("long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_long_name"):
            tl.store(out, 5)

    @jit
    def explicit(out, n):
        TURN.enter()
        for k in range(n):
            PAIR.enter(k)
            tl.store(out, k)
            PAIR.exit()
        TURN.exit()

    @jit
    def produce(out, n):
        for k in range(n):
            with kscope.region("write"):
                tl.store(out, k)

    @jit
    def consume(out, n):
        with kscope.region("read", value=n):
            tl.store(out, n)

    @jit
    def coordinates(out, n):
        x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
        with kscope.region("block", value=x + tl.num_programs(0) * (y + tl.num_programs(1) * z)):
            tl.store(out, x)

    @jit
    def strategies(out, n):
        with kscope.region("session"):
            with kscope.region("block", strategy=kscope.Lane0Warp0()):
                tl.store(out, 1)
            with kscope.region("warp", strategy=kscope.Elected()):
                tl.store(out, 2)
            with kscope.region("named", strategy=kscope.TargetWarp(0, 2)):
                tl.store(out, 3)
            with kscope.region("lanes", strategy="all"):
                tl.store(out, 4)

    @jit
    def values(out, n):
        with kscope.region("i32", value=-7):
            tl.store(out, 1)
        with kscope.region("u32", value=4_000_000_000):
            tl.store(out, 2)
        with kscope.region("f32", value=1.5):
            tl.store(out, 3)
        with kscope.region("run time", value=tl.program_id(0) - 1):
            kscope.instant("here")
            kscope.instant("here too", value=tl.program_id(0))
        kscope.counter("depth", 3)
        kscope.counter("depth", -1)
        kscope.counter("rate", 0.25)

    @jit
    def wide(out, n):
        big = n.to(tl.int64) << 33
        with kscope.region("i64", value=big - 1):
            tl.store(out, 0)
        with kscope.region("small", value=tl.program_id(0).to(tl.int64) - 1):
            tl.store(out, 1)
        with kscope.region("u64", value=(1 << 63) + 1):
            tl.store(out, 2)
        kscope.counter("bytes", big)
        kscope.counter("bytes", 3)
        kscope.instant("constant", value=-(1 << 40))
        kscope.begin("key", big)
        kscope.end("key", key=big)

    @jit
    def constants(out, n):
        with INT():
            tl.store(out, 0)
        with FLOAT():
            tl.store(out, 1)
        with INT8():
            tl.store(out, 2)
        with INT16():
            tl.store(out, 3)
        with INT32():
            tl.store(out, 4)
        with INT64():
            tl.store(out, 5)
        with UINT8():
            tl.store(out, 6)
        with UINT16():
            tl.store(out, 7)
        with UINT32():
            tl.store(out, 8)
        with UINT64():
            tl.store(out, 9)
        with FLOAT16():
            tl.store(out, 10)
        with FLOAT32():
            tl.store(out, 11)
        with FLOAT64():
            tl.store(out, 12)

    @jit
    def points(out, n):
        for k in range(n):
            kscope.instant("each", value=k)
            kscope.instant("once", strategy=kscope.Lane0Warp0())
            kscope.counter("left", n - k, strategy=kscope.TargetWarp(1))
            tl.store(out, k)

    @jit
    def chosen(out, n):
        for k in range(n):
            with kscope.region("even", value=k, when=k % 2 == 0):
                tl.store(out, k)
            kscope.instant("late", value=k, when=k >= 3)
            kscope.counter("left", n - k, when=n - k != 2)
        with kscope.region("never", when=False):
            tl.store(out, 1)
        with kscope.region("always", when=True):
            tl.store(out, 2)

    @jit
    def tracks(out, n):
        with kscope.region("load", track="a"):
            kscope.instant("done", track="a")
            kscope.role("worker")
            kscope.begin("flight", n)
            with kscope.region("load", track="b c"):
                tl.store(out, 1)
            with kscope.region("load"):
                tl.store(out, 2)
            kscope.end("flight", key=n)

    @jit
    def words(out, n):
        with kscope.region("warp", value=kscope.warp_id()):
            kscope.instant("lane", value=kscope.lane_id())
            tl.store(out, 1)
        kscope.instant("block", value=kscope.block_id())
        kscope.counter("sm", kscope.smid())

    @jit
    def pinned(out, n):
        with kscope.region("product") as region:
            product = n * 3
            region.pin(product)
        tl.store(out, product)

    @jit
    def unmarked(out, n):
        tl.store(out, n)

    return {
        kernel.__name__: kernel
        for kernel in (
            *(straight, nested, loop, early_exit, helper, itself, names, explicit, produce, consume, coordinates),
            *(strategies, values, wide, constants, points, chosen, tracks, words, pinned, unmarked),
        )
    }


def refused(jit: Any, tl: Any) -> dict[str, Any]:
    """The kernels that every frontend refuses; arguments as for kernels()."""

    @jit
    def forgotten(out, n):
        kscope.region("load")  # refused
        tl.store(out, n)

    @jit
    def dropped(out, n):
        PAIR()  # refused
        tl.store(out, n)

    @jit
    def boolean(out, n):
        with BOOL():  # refused
            tl.store(out, n)

    @jit
    def numpy_boolean(out, n):
        with NUMPY_BOOL():  # refused
            tl.store(out, n)

    @jit
    def kept(out, n):
        region = kscope.region("load")  # noqa: F841  # refused
        tl.store(out, n)

    @jit
    def in_helper(out, n):
        forgotten(out, n)

    return {kernel.__name__: kernel for kernel in (forgotten, dropped, boolean, numpy_boolean, kept, in_helper)}
