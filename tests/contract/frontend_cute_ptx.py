"""The PTX that CuTe DSL and kscope make of the contract's kernels, run by the interpreter: no GPU."""

from __future__ import annotations

import re

from contract import interpreted
from contract.frontend_cute import ABSENT, KERNELS, compile
from contract.programs import Program

from kscope.capture import Capture

__all__ = ["ABSENT", "KERNELS", "available", "run"]

ARCH = 90


def available() -> str | None:
    return None


def run(program: Program) -> Capture:
    """The program's recording."""
    texts = compile(program, ARCH)
    found = [re.search(r"\.entry (\w+)", text) for text in texts]
    names = {ours: theirs[1] for ours, theirs in zip(program.kernels, found, strict=True) if theirs}
    return interpreted.record(program, texts, program.block, names)
