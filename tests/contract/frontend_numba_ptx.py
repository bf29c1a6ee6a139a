"""The PTX that Numba and kscope make of the contract's kernels, run by the interpreter: no GPU, the whole chain."""

from __future__ import annotations

from contract import interpreted
from contract.frontend_numba import ABSENT, KERNELS, compile
from contract.programs import Program

from kscope.capture import Capture

__all__ = ["ABSENT", "KERNELS", "available", "run"]

ARCH = 90
LENGTH = 64


def available() -> str | None:
    return None


def run(program: Program) -> Capture:
    """The program's recording."""
    return interpreted.record(program, compile(program, ARCH), program.block, arguments=arguments)


def arguments(out: int, n: int) -> list[int]:
    """An array is seven: owner, parent, items, bytes of one, address, shape, stride."""
    return [0, 0, LENGTH, 4, out, LENGTH, 4, n]
