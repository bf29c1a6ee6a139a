"""Warps that run machine code: lanes in lockstep, the ones at the lowest address first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ptxvm.machine import Grid, Thread
from ptxvm.memory import ATOMIC, Memory

from kscope.sass.cubin.instructions import BYTES, Function, Instruction

from .ops import UNMODELED, compute
from .values import M32, Registers, following

_PLACE = re.compile(r"\[(R\d+|RZ)(?:\.64|\.U32\+(UR\d+))?\+?(-?0x[0-9a-f]+)?\]$")
_SPECIAL = {
    "SR_TID.X": "%tid.x", "SR_TID.Y": "%tid.y", "SR_TID.Z": "%tid.z", "SR_CTAID.X": "%ctaid.x",
    "SR_CTAID.Y": "%ctaid.y", "SR_CTAID.Z": "%ctaid.z", "SR_LANEID": "%laneid", "SR_VIRTUALSMID": "%smid",
    "SR_CgaCtaId": "%cluster_ctarank", "SR_LTMASK": "%lanemask_lt",
}  # fmt: skip
_PARAMETERS, _DESCRIPTOR = {80: 0x160, 90: 0x210}, {80: 0x118, 90: 0x208}
"""Offsets in constant bank 0, from an architecture on."""
_COPY = 0x10_0000
"""The address of a launch's parameters, for descriptors among them."""
_MOST = 200_000
"""Instructions of a warp."""


class WrongError(Exception):
    """The code did what no code may do."""


@dataclass(eq=False)
class Lane:
    """A lane: its thread, what it holds, and where it is; `met`: the barrier that it waits at."""

    thread: Thread
    registers: Registers
    at: int = 0
    met: str = ""


@dataclass(eq=False)
class Warp:
    """A warp that runs a function.

    Attributes:
        function: the code.
        memory: what it loads and stores.
        lanes: those that have not left.
        executed: how many instructions were issued, and at which addresses.
    """

    function: Function
    memory: Memory
    lanes: list[Lane]
    executed: list[int] = field(default_factory=list)
    barriers: dict[str, set[int]] = field(default_factory=dict)

    def run(self) -> None:
        """Run to the end of all lanes."""
        by_address = {one.at: one for one in self.function.instructions}
        while self.lanes:
            ready = [lane for lane in self.lanes if not lane.met]
            if not ready:
                raise WrongError("all lanes wait")
            at = min(lane.at for lane in ready)
            here = [lane for lane in ready if lane.at == at]
            self.executed.append(at)
            if len(self.executed) > _MOST:
                raise WrongError("a warp does not end")
            self._step(by_address[at], here)

    def _step(self, one: Instruction, here: Sequence[Lane]) -> None:
        active = [lane for lane in here if lane.registers.holds(one.guard)]
        for lane in here:
            lane.at += BYTES
        if not active:
            return
        step = getattr(self, f"_{one.name.lower()}", None)
        if step is not None:
            step(one, active)
        elif one.name[0] == "U":
            if not compute(one, active[0].registers):
                self._unknown(one, active[:1])
        elif one.name in UNMODELED:
            for lane in active:
                for name in one.writes:
                    lane.registers.put(name, 0)
        else:
            for lane in active:
                if not compute(one, lane.registers):
                    self._unknown(one, [lane])

    def _unknown(self, one: Instruction, active: Sequence[Lane]) -> None:
        raise WrongError(f"unknown: {one}")

    def _bra(self, one: Instruction, active: Iterable[Lane]) -> None:
        assert one.target is not None
        for lane in active:
            lane.at = one.target

    def _exit(self, one: Instruction, active: Sequence[Lane]) -> None:
        gone = {id(lane) for lane in active}
        self.lanes = [lane for lane in self.lanes if id(lane) not in gone]
        for name in list(self.barriers):
            self._release(name)

    def _bssy(self, one: Instruction, active: Iterable[Lane]) -> None:
        self.barriers[one.operands[0]] = {lane.thread.lane for lane in active}

    def _bsync(self, one: Instruction, active: Iterable[Lane]) -> None:
        name = one.operands[0]
        for lane in active:
            if lane.thread.lane not in self.barriers.get(name, set()):
                raise WrongError(f"{one}: lane {lane.thread.lane} is not expected")
            lane.met = name
        self._release(name)

    def _release(self, name: str) -> None:
        waiting = {lane.thread.lane for lane in self.lanes if lane.met == name}
        if waiting >= self.barriers[name] & {lane.thread.lane for lane in self.lanes}:
            for lane in self.lanes:
                lane.met = "" if lane.met == name else lane.met

    def _vote(self, one: Instruction, active: Sequence[Lane]) -> None:
        assert one.code == "VOTE.ANY", one
        found = any(lane.registers.value(one.operands[1]) for lane in active)
        for lane in active:
            lane.registers.put(one.operands[0], found)

    def _voteu(self, one: Instruction, active: Sequence[Lane]) -> None:
        ballot = sum(lane.registers.value(one.operands[2]) << lane.thread.lane for lane in active)
        active[0].registers.put(one.operands[0], ballot)

    def _shfl(self, one: Instruction, active: Sequence[Lane]) -> None:
        assert one.code == "SHFL.IDX", one
        values = {lane.thread.lane: lane.registers.value(one.operands[2]) for lane in active}
        for lane in active:
            lane.registers.put(one.operands[1], values[lane.registers.value(one.operands[3]) & 31])

    def _s2r(self, one: Instruction, active: Iterable[Lane]) -> None:
        for lane in active:
            lane.registers.put(one.operands[0], lane.thread.special[_SPECIAL[one.operands[1]]])

    def _r2ur(self, one: Instruction, active: Sequence[Lane]) -> None:
        active[0].registers.put(one.operands[0], active[0].registers.value(one.operands[1]))

    def _s2ur(self, one: Instruction, active: Sequence[Lane]) -> None:
        self._s2r(one, active[:1])

    def _cs2r(self, one: Instruction, active: Iterable[Lane]) -> None:
        reads: dict[str, Callable[[Thread], int]] = {
            "SR_CLOCKLO": Thread.clock, "SR_GLOBALTIMERLO": Thread.globaltimer, "SRZ": lambda thread: 0,
        }  # fmt: skip
        for lane in active:
            value = reads[one.operands[1]](lane.thread)
            lane.registers.put_many(one.operands[0], value, 1 if ".32" in one.code else 2)

    def _ldg(self, one: Instruction, active: Iterable[Lane]) -> None:
        for lane in active:
            value = self.memory.load(_address(one.operands[-1], lane.registers), size := size_of(one), "", one.at)
            lane.registers.put_many(one.operands[0], value, max(1, size // 4))

    def _stg(self, one: Instruction, active: Iterable[Lane]) -> None:
        size = size_of(one)
        for lane in active:
            words = [lane.registers.get(following(one.operands[1], n)) for n in range(max(1, size // 4))]
            value = sum(word << 32 * n for n, word in enumerate(words)) & (1 << 8 * size) - 1
            self.memory.store(lane.thread, _address(one.operands[0], lane.registers), size, value, "", one.at)

    def _break(self, one: Instruction, active: Iterable[Lane]) -> None:
        """Lanes that the barrier does not wait for."""
        *conditions, name = one.operands
        for lane in active:
            if all(lane.registers.value(text) for text in conditions):
                self.barriers[name].discard(lane.thread.lane)
        self._release(name)

    def _atomg(self, one: Instruction, active: Iterable[Lane]) -> None:
        for lane in active:
            lane.registers.put(one.operands[1], self._added(one, one.operands[2], one.operands[3], lane))

    def _red(self, one: Instruction, active: Iterable[Lane]) -> None:
        self._redg(one, active)

    def _redg(self, one: Instruction, active: Iterable[Lane]) -> None:
        place, value = one.operands
        for lane in active:
            self._added(one, place, value, lane)

    def _added(self, one: Instruction, place: str, value: str, lane: Lane) -> int:
        (kind,) = {part.lower() for part in one.code.split(".")} & ATOMIC.keys()
        number = lane.registers.value(value) & M32
        old: int = self.memory.atomic(lane.thread, kind, _address(place, lane.registers), 4, number, "", one.at)
        return old


def size_of(one: Instruction) -> int:
    """Bytes that a load or a store moves."""
    sizes = {"64": 8, "128": 16, "U16": 2, "U8": 1}
    return next((sizes[part] for part in one.code.split(".") if part in sizes), 4)


def _address(text: str, registers: Registers) -> int:
    found = _PLACE.search(text)
    assert found is not None, text
    first = registers.get(found[1]) + registers.wide(found[2]) if found[2] else registers.wide(found[1])
    return (first + int(found[3] or "0", 16)) & (1 << 64) - 1


def constants(
    shape: Grid, special: Mapping[str, int], parameters: bytes, bank: bytes, arch: int
) -> Callable[[int, int], int]:
    """Words of constant bank 0, where the driver puts what a launch is, and of bank 3, a module's constants."""
    x, y, z = shape.cluster
    words = dict(zip(range(0, 12, 4), shape.block, strict=True)) | dict(zip(range(12, 24, 4), shape.grid, strict=True))
    words |= {0x30: special["%gridid"] & M32, 0x34: special["%gridid"] >> 32, 0x28: 0xFFFDC0}
    first, descriptor = (some[max(one for one in some if one <= arch)] for some in (_PARAMETERS, _DESCRIPTOR))
    words |= {descriptor: 0, descriptor + 4: 0}
    words |= {0x144: x, 0x148: y, 0x14C: z, 0x188: x * y * z}
    words |= {0x198: _COPY, 0x19C: 0}

    def word(number: int, at: int) -> int:
        data = bank if number == 3 else parameters
        start = at if number == 3 else at - first
        if number == 0 and at in words:
            return words[at]
        if not 0 <= start <= len(data) - 4:
            raise WrongError(f"c[{number:#x}][{at:#x}] is not known")
        return int.from_bytes(data[start : start + 4], "little")

    return word


def warps(
    function: Function,
    memory: Memory,
    threads: Sequence[Thread],
    shape: Grid,
    parameters: bytes,
    bank: bytes,
    kind: type[Warp] = Warp,
) -> list[Warp]:
    """The warps of these threads, at the function's begin."""
    found: dict[Any, tuple[Warp, dict[str, int]]] = {}
    for thread in threads:
        key = (*thread.key[:3], thread.warp)
        warp, uniform = found.setdefault(key, (kind(function, memory, []), {}))
        word = constants(shape, thread.special, parameters, bank, function.arch)
        warp.lanes.append(Lane(thread, Registers({}, uniform, word)))
    return [warp for warp, _ in found.values()]
