"""Register limits with which as many blocks of a kernel fit on an SM with marks as without."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from ..machine_code.occupancy import LARGEST, SMS
from ..ptx import cfg

_TARGET = re.compile(r"^\.target\s+sm_(\d+)", re.M)
_THREADS = re.compile(r"\.(?:req|max)ntid\s+([\d,\s]+)")
_BOUND = re.compile(r"\.(?:minnctapersm|maxnctapersm|maxnreg)\b")
_MOST_REGISTERS = 255
_GROWTH, _FULL = 64, 240
"""Registers per thread that marks add at most; above _FULL the assembler may have used any number without marks."""


@dataclass(frozen=True)
class Limits:
    """Limits on the blocks of a kernel, besides registers.

    Attributes:
        arch: compute capability, such as 90; an unknown one counts as the largest.
        warps: per block.
        shared: bytes of shared memory per block.
    """

    arch: int
    warps: int
    shared: int

    def blocks(self, registers: int) -> int:
        """Blocks that fit on an SM with this many registers per thread."""
        return SMS.get(self.arch, LARGEST).fitting(registers, self.shared, self.warps)

    def most_registers(self, blocks: int) -> int:
        """The most registers per thread with which this many blocks fit."""
        fitting = (count for count in range(_MOST_REGISTERS // 8 * 8, 0, -8) if self.blocks(count) >= blocks)
        return next(fitting, 0)


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
        yield function.name, -(-prod(map(int, threads[1].split(","))) // 32)


def by_registers(limits: Mapping[str, Limits]) -> bool:
    """True if a kernel's blocks per SM depend on its registers."""
    return any(one.blocks(16) > one.blocks(_MOST_REGISTERS) for one in limits.values())


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
