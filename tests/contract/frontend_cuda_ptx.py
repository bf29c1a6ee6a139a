"""The PTX that nvcc makes of the contract's kernels with kscope.cuh in place, run by the interpreter: no GPU.

What lives here: from a program to PTX. What does not: kernels (cuda_programs.py), launches (interpreted.py).
"""

from __future__ import annotations

from dataclasses import replace

from contract import interpreted
from contract.cuda_nvcc import compiled, described, options
from contract.cuda_programs import FUNCTIONS as KERNELS
from contract.cuda_programs import source_of
from contract.programs import Program

from kscope.capture import Capture

__all__ = ["ABSENT", "KERNELS", "available", "compile", "run"]

ABSENT: dict[str, str] = {}
ARCH = 90


def available() -> str | None:
    return None


def run(program: Program) -> Capture:
    texts = compile(program, ARCH)
    capture = interpreted.record(program, texts, program.block, KERNELS)
    return replace(capture, modules=tuple(dict.fromkeys(meta for text in texts for meta in described(text.encode()))))


def compile(program: Program, arch: int) -> list[str]:
    """The program's kernels as PTX, one module each."""
    arguments = (*options(program.recording), "-ptx", f"-arch=sm_{arch}")
    return [compiled(source_of(name), arguments, ".ptx").decode() for name in program.kernels]
