"""A block of threads: program counters and registers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
from ptxvm.syntax import Addr, Imm, Instr, Module, Name, Operand, PtxError, Reg, Sink, Special

from .memory import Memory, Places, Words

Dim = tuple[int, int, int]
Lanes = npt.NDArray[np.intp]
_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_PLAIN = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def width(kind: str) -> int:
    """Bits of a type such as f32, b64, pred."""
    return 1 if kind == "pred" else int(kind[1:])


class Machine:
    """A kernel and the block that runs it. params: its arguments as words; missing ones are 0."""

    def __init__(self, module: Module, name: str, memory: Memory, params: Sequence[int]) -> None:
        kernel = module.kernels[name]
        self.memory, self.symbols = memory, memory.symbols(module)
        self.params = dict(zip((name for name, _ in kernel.params), chain(params, repeat(0)), strict=False))
        self.code: list[Instr] = []
        self.begin = []  # of each of the kernel's blocks of instructions
        for block in kernel.blocks:
            self.begin.append(len(self.code))
            self.code += block

    def enter(self, block: Dim, threads: Dim, grid: Dim) -> None:
        """All threads of a block at the kernel's first instruction."""
        self.count = int(np.prod(threads))
        thread, (x, y, _) = np.arange(self.count), threads
        self.warp = thread // 32
        self.registers: dict[str, Words] = {}
        self.barriers: dict[int, list[int]] = {}
        self.special = {"%tid.x": thread % x, "%tid.y": thread // x % y, "%tid.z": thread // (x * y)}
        self.special["%laneid"] = thread % 32
        for name, of in (("ntid", threads), ("ctaid", block), ("nctaid", grid)):
            self.special |= {f"%{name}.{axis}": np.full(self.count, of[n]) for n, axis in enumerate("xyz")}
        self.at = np.zeros(self.count, np.int64)
        self.alive, self.waiting = np.ones(self.count, bool), np.zeros(self.count, bool)

    def jump(self, lanes: Lanes, instruction: Instr, label: str) -> None:
        block = instruction.scope.label(label)
        if block is None:
            raise PtxError(instruction.line, f"no label {label}")
        self.at[lanes] = self.begin[block]

    def raw(self, arg: Operand, lanes: Lanes) -> Words:
        """The word of an operand in each lane. Clocks and other unknown registers are 0."""
        if isinstance(arg, Imm):
            return np.full(len(lanes), arg.value & (1 << 64) - 1, np.uint64)
        if isinstance(arg, Reg):
            word = self._register(arg)[lanes]
            return np.uint64(1) - word if arg.negated else word
        if isinstance(arg, Special):
            return self.special.get(arg.name, np.zeros(self.count, np.int64))[lanes].astype(np.uint64)
        if isinstance(arg, Name):
            return np.full(len(lanes), self.symbols[arg.name], np.uint64)
        raise TypeError(f"{arg} is no number")

    def read(self, arg: Operand, kind: str, lanes: Lanes) -> npt.NDArray[Any]:
        """An operand as floats, int64 (signed types), or uint64 (all others)."""
        word, bits = self.raw(arg, lanes), width(kind)
        if bits < 64:
            word = word & np.uint64((1 << bits) - 1)
        if kind in _FLOATS:
            return word.astype(_PLAIN[bits // 8]).view(_FLOATS[kind])
        if kind[0] != "s":
            return word
        signed = word.astype(np.int64)
        return signed if bits == 64 else (signed ^ (1 << bits - 1)) - (1 << bits - 1)

    def write(self, arg: Operand, value: npt.NDArray[Any], kind: str, lanes: Lanes) -> None:
        """Cut to the type's width; a signed one fills a wider register."""
        if isinstance(arg, Sink):
            return
        assert isinstance(arg, Reg), arg
        if kind in _FLOATS:
            word = value.astype(_FLOATS[kind]).view(_PLAIN[width(kind) // 8]).astype(np.uint64)
        else:
            bits = arg.bits if kind[0] == "s" else min(arg.bits, width(kind))
            word = value.astype(np.uint64) if value.dtype != np.int64 else value.view(np.uint64)
            word = word & np.uint64((1 << bits) - 1)
        self._register(arg)[lanes] = word

    def address(self, arg: Operand, lanes: Lanes) -> Places:
        assert isinstance(arg, Addr), arg
        return (self.raw(arg.base, lanes) + np.uint64(arg.offset & (1 << 64) - 1)).astype(np.int64)

    def _register(self, reg: Reg) -> Words:
        return self.registers.setdefault(reg.py, np.zeros(self.count, np.uint64))
