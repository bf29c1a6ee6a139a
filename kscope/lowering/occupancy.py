"""Blocks of a kernel that fit on an SM: by registers, threads and shared memory.

Figures are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from . import cfg

_TARGET = re.compile(r"^\.target\s+sm_(\d+)", re.M)
_THREADS = re.compile(r"\.(?:req|max)ntid\s+([\d,\s]+)")
_BOUND = re.compile(r"\.(?:minnctapersm|maxnctapersm|maxnreg)\b")
_WARPS = {75: 32, 86: 48, 87: 48, 89: 48, 120: 48, 121: 48}
_SHARED_KIB = {75: 64, 80: 164, 86: 100, 87: 164, 89: 100, 120: 100, 121: 100}
_MOST_WARPS, _MOST_SHARED_KIB, _MOST_REGISTERS = 64, 228, 255
_RESERVED = 1024
"""Bytes of shared memory that each block occupies in addition."""
_GROWTH, _FULL = 64, 240
"""Registers per thread that marks add at most; above _FULL the assembler may have used any number without marks."""


@dataclass(frozen=True)
class Limits:
    """What limits the blocks of a kernel, besides registers.

    Attributes:
        arch: compute capability, such as 90.
        warps: per block.
        shared: bytes of shared memory per block.
    """

    arch: int
    warps: int
    shared: int

    def blocks(self, registers: int) -> int:
        """Blocks that fit on an SM with this many registers per thread."""
        by_warps = _WARPS.get(self.arch, _MOST_WARPS) // self.warps
        by_shared = _SHARED_KIB.get(self.arch, _MOST_SHARED_KIB) * 1024 // (self.shared + _RESERVED)
        return min(by_warps, by_shared, warps(registers) // self.warps)

    def most_registers(self, blocks: int) -> int:
        """The most registers per thread with which this many blocks fit."""
        fitting = (count for count in range(_MOST_REGISTERS // 8 * 8, 0, -8) if self.blocks(count) >= blocks)
        return next(fitting, 0)


def warps(registers: int) -> int:
    """Warps per SM at `registers` per thread: each of four partitions has 16,384 registers, allocates them to a warp in
    units of 256, and holds at most 16 warps.
    """
    return 4 * min(16, 16384 // (256 * -(-max(registers, 1) // 8)))


def limits(text: str, shared: int) -> dict[str, Limits]:
    """The limits of the kernels in a PTX text that declare their threads and leave registers to the assembler."""
    target = _TARGET.search(text)
    return {name: Limits(int(target[1]), warps, shared) for name, warps in _warps(text)} if target else {}


def _warps(text: str) -> Iterator[tuple[str, int]]:
    for function in cfg.functions(text):
        brace = function.open - 1
        head = function.text[function.text.rfind(")", 0, brace) : brace]
        threads = _THREADS.search(head)
        if threads is None or _BOUND.search(head):
            continue
        count = 1
        for size in threads[1].split(","):
            count *= int(size)
        yield function.name, -(-count // 32)


def may_lose(limits: Mapping[str, Limits], registers: Mapping[str, int]) -> bool:
    """True if a kernel that needs this many registers with marks could have more blocks per SM without them."""
    pairs = [(one, registers[name]) for name, one in limits.items() if name in registers]
    return any(
        one.blocks(16 if count > _FULL else max(count - _GROWTH, 16)) > one.blocks(count) for one, count in pairs
    )


def bounds(limits: Mapping[str, Limits], plain: Mapping[str, int], marked: Mapping[str, int]) -> dict[str, int]:
    """The register limit of each kernel that loses blocks, with which as many fit as without marks."""
    return {
        name: one.most_registers(one.blocks(plain[name]))
        for name, one in limits.items()
        if name in plain and name in marked and one.blocks(marked[name]) < one.blocks(plain[name])
    }
