"""Cycles of results, by architecture, for the checkers. Distances are the shortest that ptxas keeps between an
instruction and the first use of its result (of rare instructions the longest seen); docs/design/sass.md lists the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MULTIPLIERS = frozenset({"IMAD", "FFMA", "FMUL", "FADD", "VIADD"})
ALU = frozenset(
    {"FMNMX", "FSEL", "FSETP", "IADD3", "IMNMX", "ISETP", "LEA", "LOP3", "MOV", "PLOP3", "PRMT", "SEL", "SGXT", "SHF"}
    | {"VIADDMNMX", "VIMNMX"}
)
"""Instructions of two pipes. On all architectures, a result reaches the other pipe one cycle later; ptxas output has no
exception.
"""


@dataclass(frozen=True)
class Latencies:
    """Cycles of an architecture. Memory instructions read results one cycle later, unless noted.

    Attributes:
        names: from an instruction to one that computes with its result, by name; 4 for others.
        wide_low: the first register of a wide multiplication, for what computes in the same pipe, what computes
            elsewhere, and instructions of memory.
        late: how much later a wide multiplication reads the second register of its addend than its other operands.
        clock, clock_32, clock_of_memory: CS2R of two registers and of one, and either for an instruction of memory.
        uniform_guard: from an instruction to one whose guard is the uniform predicate that it writes.
        fixed: cycles of the results of instructions that have no scoreboard here but have one elsewhere, by code.
        read: cycles until these have read their operands.
    """

    names: Mapping[str, int]
    wide_low: tuple[int, int, int]
    late: int
    clock: int
    clock_32: int
    clock_of_memory: int = 8
    uniform_guard: int = 13
    fixed: Mapping[str, int] = field(default_factory=dict[str, int])
    read: int = 0


_PRODUCTS: Mapping[str, int] = dict.fromkeys(
    (
        *("HMMA.16816.F32", "HMMA.16816.F32.BF16", "HMMA.16816.F16", "HMMA.1688.F32.TF32", "HMMA.1684.F32.TF32"),
        *("HMMA.1688.F32", "HMMA.1688.F32.BF16", "HMMA.1688.F16"),
        *("IMMA.16832.S8.S8", "IMMA.16816.S8.S8", "BMMA.168256.AND.POPC"),
    ),
    24,
)
"""Matrix products of a warp. After those of the greatest depth, ptxas waits 24 cycles before a dependent product and 23
before a store; after the others, 15."""
_NAMES = {"HFMA2": 6, "HADD2": 5, "PRMT": 4, "LEA": 3, "R2UR": 13}
_SM90 = Latencies(_NAMES, wide_low=(3, 3, 4), late=1, clock=6, clock_32=4, fixed=_PRODUCTS, read=7)
"""From 130 functions of Triton, Gluon, CuTe DSL, nvcc and Numba, ptxas 12.8 to 13.4; products from 7 functions of
Triton and 88 written for this."""
_SM80 = Latencies(
    _NAMES | {"LEA": 4, "UFLO": 6, "UPOPC": 5},
    wide_low=(4, 5, 5),
    late=0,  # no later read was seen
    clock=6,
    clock_32=8,  # 5 to 8 were seen, on sm_80 and sm_86: the longest
    uniform_guard=11,
    fixed=_PRODUCTS,
    read=7,
)
"""In 29 kernels of Triton for each of sm_80, sm_86 and sm_89, and what forms were learned from; ptxas 12.9 and 13.0."""
_KNOWN = {80: _SM80, 86: _SM80, 89: _SM80, 90: _SM90}


def of(arch: int) -> Latencies:
    """The latencies of an architecture; for unknown ones those of sm_90, as nothing is inserted there."""
    return _KNOWN.get(arch, _SM90)
