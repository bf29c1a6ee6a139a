"""The contract's kernels in Gluon: roles are partitions of its warps, which Hopper and later have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from contract import frontend_triton, triton_programs
from contract.frontend_triton import block as block
from contract.programs import Program
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

import kscope

NEEDS_GPU = True
FRONTEND = "triton"
OWN_ASSEMBLER = True
ABSENT = triton_programs.ABSENT
LATER = {"roles": 90}
NOT_INTERPRETED = {"roles": "tests/ptxvm knows no mbarriers"}


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


KERNELS: dict[str, Any] = triton_programs.kernels(gluon.jit, gl) | {"roles": roles}
REFUSED = triton_programs.refused(gluon.jit, gl)


def available() -> str | None:
    missing = frontend_triton.available()
    if missing:
        return missing
    import torch

    major, minor = torch.cuda.get_device_capability()
    return None if major >= 9 else f"needs sm_90 or later, this is sm_{major}{minor}"


def ready(program: Program) -> Callable[[], None]:
    return frontend_triton.launcher(program, KERNELS, _options(program))


def compile(program: Program, arch: int) -> list[str]:
    return [
        frontend_triton.ptx(GluonASTSource, (KERNELS | REFUSED)[name], arch, _options(program))
        for name in program.kernels
    ]


def _options(program: Program) -> dict[str, Any]:
    """A kernel with roles is launched with the warps of its first role; its other warps are added."""
    options = frontend_triton.options(program)
    return options | {"num_warps": 4} if "roles" in program.kernels else options
