"""The PTX that CuPy's NVRTC and kscope make of the contract's CUDA C++, run by the interpreter: no GPU."""

from __future__ import annotations

from contract import interpreted
from contract.cuda_programs import FUNCTIONS
from contract.frontend_cupy import ABSENT, KERNELS, compile
from contract.programs import Program

from kscope.capture import Capture

__all__ = ["ABSENT", "KERNELS", "available", "run"]

ARCH = 90


def available() -> str | None:
    return None


def run(program: Program) -> Capture:
    """The program's recording."""
    return interpreted.record(program, compile(program, ARCH), program.block, FUNCTIONS)
