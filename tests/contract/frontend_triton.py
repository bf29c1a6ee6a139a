"""The contract's kernels in Triton. A block is whole warps in one dimension, and all of it runs the same code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from contract import triton_programs
from contract.device import with_torch
from contract.programs import Dim, Program
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

NEEDS_GPU = True
FRONTEND = "triton"
OWN_ASSEMBLER = True
KERNELS = triton_programs.kernels(triton.jit, tl)
REFUSED = triton_programs.refused(triton.jit, tl)
ABSENT = triton_programs.ABSENT | {"roles": "Triton gives a block's warps no roles; Gluon does"}


def available() -> str | None:
    return None if backends["nvidia"].driver.is_active() else "needs an NVIDIA GPU"


def ready(program: Program) -> Callable[[], None]:
    return launcher(program, KERNELS, options(program))


def launcher(program: Program, kernels: dict[str, Any], launched: dict[str, Any]) -> Callable[[], None]:
    """A function that launches the program with these kernels and options."""
    import torch

    out = torch.zeros(64, device="cuda", dtype=torch.int32)

    def launch() -> None:
        for name in program.kernels:
            kernels[name][program.grid](out, program.n, **launched)

    return with_torch(launch, program.replays)


def compile(program: Program, arch: int) -> list[str]:
    return [ptx(ASTSource, (KERNELS | REFUSED)[name], arch, options(program)) for name in program.kernels]


def ptx(source: Any, kernel: Any, arch: int, launched: dict[str, Any]) -> str:
    """A kernel's PTX. source: Triton's or Gluon's source class."""
    signature = {"out": "*i32", "n": "i32"}
    made = triton.compile(source(kernel, signature, {}), target=GPUTarget("cuda", arch, 32), options=launched)
    assert made.asm["cubin"].startswith(b"\x7fELF")
    return str(made.asm["ptx"])


def block(program: Program) -> Dim:
    x, y, z = program.block
    return x * y * z, 1, 1


def options(program: Program) -> dict[str, Any]:
    """enable_fp_fusion is passed because Triton 3.9 warns without it."""
    return {"num_warps": block(program)[0] // 32, "enable_fp_fusion": True}
