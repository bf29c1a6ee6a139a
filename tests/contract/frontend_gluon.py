"""The contract's kernels in Gluon, for Hopper and later: roles are partitions of its warps."""

from __future__ import annotations

from typing import Any

import triton
from contract import frontend_triton
from contract.programs import Program
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

import kscope
from kscope import frontends
from kscope.capture import Capture

NEEDS_GPU = True
ABSENT = {"partial": frontend_triton.ABSENT["partial"]}
ARCHITECTURES = (90, 100)
TURN = kscope.scope("turn")
PAIR = kscope.scope("pair")


@gluon.jit
def straight(out, n):
    with kscope.region("first"):
        gl.store(out, 1)
    with kscope.region("second"):
        gl.store(out, 2)


@gluon.jit
def nested(out, n):
    with kscope.region("outer"):
        with kscope.region("middle"):
            gl.store(out, 1)
            with kscope.region("inner"):
                gl.store(out, 2)
        with kscope.region("inner"):
            gl.store(out, 3)


@gluon.jit
def loop(out, n):
    with kscope.region("loop"):
        for k in range(n):
            with kscope.region("step", value=k):
                gl.store(out, k)


@gluon.jit
def early_exit(out, n):
    with kscope.region("before"):
        gl.store(out, 1)
    if gl.program_id(0) >= n:
        return
    with kscope.region("after"):
        gl.store(out, 2)


@gluon.jit
def helper(out, n):
    with kscope.region("caller"):
        item(out)
    item(out)


@gluon.jit
def item(out):
    with kscope.region("item"):
        gl.store(out, 1)


@gluon.jit
def explicit(out, n):
    TURN.enter()
    for k in range(n):
        PAIR.enter(k)
        gl.store(out, k)
        PAIR.exit()
    TURN.exit()


@gluon.jit
def produce(out, n):
    for k in range(n):
        with kscope.region("write"):
            gl.store(out, k)


@gluon.jit
def consume(out, n):
    with kscope.region("read", value=n):
        gl.store(out, n)


@gluon.jit
def coordinates(out, n):
    x, y, z = gl.program_id(0), gl.program_id(1), gl.program_id(2)
    with kscope.region("block", value=x + gl.num_programs(0) * (y + gl.num_programs(1) * z)):
        gl.store(out, x)


@gluon.jit
def strategies(out, n):
    with kscope.region("session"):
        with kscope.region("block", strategy=kscope.Lane0Warp0()):
            gl.store(out, 1)
        with kscope.region("warp", strategy=kscope.Elected()):
            gl.store(out, 2)
        with kscope.region("named", strategy=kscope.TargetWarp(0, 2)):
            gl.store(out, 3)
        with kscope.region("lanes", strategy=kscope.AllThreads()):
            gl.store(out, 4)


@gluon.jit
def values(out, n):
    with kscope.region("i32", value=-7):
        gl.store(out, 1)
    with kscope.region("u32", value=4_000_000_000):
        gl.store(out, 2)
    with kscope.region("f32", value=1.5):
        gl.store(out, 3)
    with kscope.region("run time", value=gl.program_id(0) - 1):
        kscope.instant("here")
        kscope.instant("here too", value=gl.program_id(0))
    kscope.counter("depth", 3)
    kscope.counter("depth", -1)
    kscope.counter("rate", 0.25)


@gluon.jit
def roles(out, n):
    full = gl.allocate_shared_memory(gl.int64, [8, 1], mbarrier.MBarrierLayout())
    for k in gl.static_range(8):
        mbarrier.init(full.index(k), count=1)
    fence_async_shared()
    gl.warp_specialize([(consume_tiles, (out, full, n)), (produce_tiles, (full, n))], [4], [40])


@gluon.jit
def consume_tiles(out, full, n):
    for k in range(n):
        with kscope.region("wait"):
            mbarrier.wait(full.index(k), 0)
        with kscope.region("mma", value=k):
            gl.store(out, k)


@gluon.jit
def produce_tiles(full, n):
    for k in range(n):
        with kscope.region("load", value=k):
            mbarrier.arrive(full.index(k), count=1)


@gluon.jit
def unmarked(out, n):
    gl.store(out, n)


KERNELS: dict[str, Any] = {
    kernel.__name__: kernel
    for kernel in (
        *(straight, nested, loop, early_exit, helper, explicit, produce, consume, coordinates),
        *(strategies, values, roles, unmarked),
    )
}


def available() -> str | None:
    if not backends["nvidia"].driver.is_active():
        return "needs an NVIDIA GPU"
    import torch

    capability = torch.cuda.get_device_capability()
    return None if capability >= (9, 0) else f"needs sm_90 or later, this is sm_{capability[0]}{capability[1]}"


def run(program: Program) -> Capture:
    """As in Triton, with these kernels."""
    return frontend_triton.record(program, KERNELS, _options(program))


def compile(program: Program, arch: int) -> list[str]:
    """The program's kernels as PTX with every mark lowered, without a GPU."""
    frontend = frontends.frontend("triton")
    frontend.enable(program.recording)
    try:
        return [_ptx(KERNELS[name], program, arch) for name in program.kernels]
    finally:
        frontend.disable()


def _ptx(kernel: Any, program: Program, arch: int) -> str:
    source = GluonASTSource(kernel, {"out": "*i32", "n": "i32"}, {})
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=_options(program))
    return str(compiled.asm["ptx"])


def _options(program: Program) -> dict[str, Any]:
    """A kernel with roles is launched with the warps of its first role; its other warps come on top."""
    options = frontend_triton.options(program)
    return options | {"num_warps": 4} if "roles" in program.kernels else options
