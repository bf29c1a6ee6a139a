"""The contract's kernels in Triton. A block is whole warps in one dimension, and all of it runs the same code."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from contract.programs import Program
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import kscope
from kscope import frontends
from kscope.capture import Capture

NEEDS_GPU = True
ABSENT = {
    "partial": "a Triton block is made of whole warps, and its threads do not return one by one",
    "roles": "Triton gives a block's warps no roles; Gluon does",
}
TURN = kscope.scope("turn")
PAIR = kscope.scope("pair")


@triton.jit
def straight(out, n):
    with kscope.region("first"):
        tl.store(out, 1)
    with kscope.region("second"):
        tl.store(out, 2)


@triton.jit
def nested(out, n):
    with kscope.region("outer"):
        with kscope.region("middle"):
            tl.store(out, 1)
            with kscope.region("inner"):
                tl.store(out, 2)
        with kscope.region("inner"):
            tl.store(out, 3)


@triton.jit
def loop(out, n):
    with kscope.region("loop"):
        for k in range(n):
            with kscope.region("step", value=k):
                tl.store(out, k)


@triton.jit
def early_exit(out, n):
    with kscope.region("before"):
        tl.store(out, 1)
    if tl.program_id(0) >= n:
        return
    with kscope.region("after"):
        tl.store(out, 2)


@triton.jit
def helper(out, n):
    with kscope.region("caller"):
        item(out)
    item(out)


@triton.jit
def item(out):
    with kscope.region("item"):
        tl.store(out, 1)


@triton.jit
def explicit(out, n):
    TURN.enter()
    for k in range(n):
        PAIR.enter(k)
        tl.store(out, k)
        PAIR.exit()
    TURN.exit()


@triton.jit
def produce(out, n):
    for k in range(n):
        with kscope.region("write"):
            tl.store(out, k)


@triton.jit
def consume(out, n):
    with kscope.region("read", value=n):
        tl.store(out, n)


@triton.jit
def coordinates(out, n):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    with kscope.region("block", value=x + tl.num_programs(0) * (y + tl.num_programs(1) * z)):
        tl.store(out, x)


@triton.jit
def strategies(out, n):
    with kscope.region("session"):
        with kscope.region("block", strategy=kscope.Lane0Warp0()):
            tl.store(out, 1)
        with kscope.region("warp", strategy=kscope.Elected()):
            tl.store(out, 2)
        with kscope.region("named", strategy=kscope.TargetWarp(0, 2)):
            tl.store(out, 3)
        with kscope.region("lanes", strategy=kscope.AllThreads()):
            tl.store(out, 4)


@triton.jit
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


@triton.jit
def unmarked(out, n):
    tl.store(out, n)


KERNELS: dict[str, Any] = {
    kernel.__name__: kernel
    for kernel in (
        *(straight, nested, loop, early_exit, helper, explicit, produce, consume, coordinates),
        *(strategies, values, unmarked),
    )
}


def available() -> str | None:
    return None if backends["nvidia"].driver.is_active() else "needs an NVIDIA GPU"


def run(program: Program) -> Capture:
    return record(program, KERNELS, options(program))


def record(program: Program, kernels: dict[str, Any], launched: dict[str, Any]) -> Capture:
    """Prepared and launched once before the session, so that a graph can be captured."""
    import torch

    out = torch.zeros(64, device="cuda", dtype=torch.int32)
    recording, sampling = program.recording, program.sampling
    compiled = {name: getattr(recording, name) for name in ("strategy", "records", "fill", "clock", "live")}

    def launch() -> None:
        for name in program.kernels:
            kernels[name][program.grid](out, program.n, **launched)

    kscope.enable(**compiled)
    try:
        launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph() if program.replays > 1 else None
        if graph is not None:
            with torch.cuda.graph(graph):
                launch()
        with kscope.profile(**compiled, blocks=sampling.blocks, warps=sampling.warps) as prof:
            for _ in range(program.replays):
                if graph is None:
                    launch()
                else:
                    graph.replay()
            torch.cuda.synchronize()
    finally:
        kscope.disable()
    return prof.capture


def compile(program: Program, arch: int) -> list[str]:
    """The program's kernels as PTX with every mark lowered, without a GPU."""
    frontend = frontends.frontend("triton")
    frontend.enable(program.recording)
    try:
        return [_ptx(KERNELS[name], program, arch) for name in program.kernels]
    finally:
        frontend.disable()


def _ptx(kernel: Any, program: Program, arch: int) -> str:
    source = ASTSource(kernel, {"out": "*i32", "n": "i32"}, {})
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options(program))
    return str(compiled.asm["ptx"])


def options(program: Program) -> dict[str, Any]:
    """enable_fp_fusion is said because Triton 3.9 warns where it is not."""
    x, y, z = program.block
    return {"num_warps": x * y * z // 32, "enable_fp_fusion": True}
