"""The PTX that Triton and kscope emit for the contract's kernels, run by the interpreter: no GPU, the whole chain."""

from __future__ import annotations

from contract import interpreted
from contract.frontend_triton import ABSENT, KERNELS, compile
from contract.programs import Program

from kscope.capture import Capture

__all__ = ["ABSENT", "KERNELS", "available", "run"]

ARCH = 90


def available() -> str | None:
    return None


def run(program: Program) -> Capture:
    """The program's recording. A Triton block has one dimension."""
    x, y, z = program.block
    return interpreted.record(program, compile(program, ARCH), (x * y * z, 1, 1))
