"""Warps that run operations on barriers: what lane 0 of each warp must have recorded of them.

A wait succeeds after some tries. elect.sync elects the last lane, which the code may not take for lane 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ptxvm.host import Slab

from kscope.machine_code import elf
from kscope.marks import operations
from kscope.sass.cubin.instructions import BYTES, Function, Instruction
from kscope.sass.recording.kernel import Recorded

from . import launching
from .launching import Case
from .machine import Lane, _address, size_of, warps
from .values import M32, following
from .whole_kernel import KernelWarp

_PART = re.compile(r"UR\d+|URZ|R\d+|RZ|-?0x[0-9a-f]+")
_QUIET = frozenset({"BAR", "UTMACMDFLUSH", "FENCE", "MEMBAR", "WARPGROUP", "UTMALDG", "UTMASTG", "HGMMA", "ERRBAR"})
_TRIES = 3
PARAMETER = 256
"""Each word of a kernel's parameters."""
Seen = tuple[str, int]
"""The kind of a record, and its value."""


@dataclass(eq=False)
class PipelineWarp(KernelWarp):
    """A warp with its operations. seen: what it did, in order."""

    seen: list[Seen] = field(default_factory=list)
    tries: int = 0
    roles: list[int] = field(default_factory=list)
    """A warp's role as Gluon's and Triton's kernels read it, which another warp has written."""

    def _step(self, one: Instruction, here: Sequence[Lane]) -> None:
        if one.name in _QUIET:
            active = [lane for lane in here if lane.registers.holds(one.guard)]
            for lane in here:
                lane.at += BYTES
            if one.code == "UTMACMDFLUSH" and active:
                self.seen.append(("commit", len(active) - 1 << operations.LANES_SHIFT))
            if one.code.startswith("WARPGROUP.DEPBAR"):
                self.seen.append(("drain", int(one.operands[-1], 16)))
            return
        carries = one.code.startswith("UIMAD.WIDE") and any(operand.startswith("UP") for operand in one.operands)
        if carries or one.code.endswith(".SX32"):
            for lane in here:
                lane.at += BYTES
            self._unknown(one, here[:1] if carries else here)
            return
        super()._step(one, here)

    def _ldg(self, one: Instruction, active: Sequence[Lane]) -> None:
        if not self._elsewhere(one, one.operands[-1], active):
            super()._ldg(one, active)

    def _stg(self, one: Instruction, active: Sequence[Lane]) -> None:
        if not self._elsewhere(one, one.operands[0], active):
            super()._stg(one, active)

    def _atomg(self, one: Instruction, active: Sequence[Lane]) -> None:
        if not self._elsewhere(one, one.operands[2], active):
            super()._atomg(one, active)

    def _elsewhere(self, one: Instruction, place: str, active: Sequence[Lane]) -> bool:
        """True if the kernel accesses memory of its parameters, which the test does not have."""
        address = _address(place, active[0].registers)
        outside = address >> 32 == PARAMETER or address >> 48 != 0
        if outside:
            self._unknown(one, active)
        return outside

    def _elect(self, one: Instruction, active: Sequence[Lane]) -> None:
        for lane in active:
            lane.registers.put(one.operands[0], lane is active[-1])

    def _usetmaxreg(self, one: Instruction, active: Sequence[Lane]) -> None:
        if one.operands[0].startswith("UP"):
            active[0].registers.put(one.operands[0], 1)

    def _lds(self, one: Instruction, active: Iterable[Lane]) -> None:
        if one.code == "LDS.U8" and self.roles:
            role = self.roles.pop(0)
            for lane in active:
                lane.registers.put(one.operands[0], role)
        else:
            for lane in active:
                for number in range(max(1, size_of(one) // 4)):
                    lane.registers.put(following(one.operands[0], number), PARAMETER)

    def _depbar(self, one: Instruction, active: Sequence[Lane]) -> None:
        if one.code == "DEPBAR.LE":
            self.seen.append(("drain", int(one.operands[-1], 16)))

    def _syncs(self, one: Instruction, active: Sequence[Lane]) -> None:
        place = next(operand for operand in one.operands if operand.startswith("["))
        value = sum(active[0].registers.value(part) for part in _PART.findall(place)) & M32
        if "PHASECHK" in one.code:
            self.tries += 1
            over = self.tries % _TRIES == 0
            for lane in active:
                lane.registers.put(one.operands[0], over)
            parity = active[0].registers.value(one.operands[-1]) >> 31
            if over:
                self.seen.append(("wait", value + (parity << operations.PARITY_SHIFT) & M32))
        elif "EXCH" in one.code:
            self.seen.append(("init", value))
        elif "ARRIVE" in one.code:
            kind = "arrive" if "A1T0" in one.code or "ART0" in one.code else "expect"
            self.seen.append((kind, value))


def ran(
    found: Recorded, function: Function, case: Case, parameters: bytes = b"", roles: Sequence[int] = ()
) -> dict[tuple[int, ...], tuple[list[Seen], Slab | None, int]]:
    """The operations of each warp; its slab, with the records of rows; and the number of its rows.

    Args:
        found: the machine code.
        function: its kernel.
        case: how it is launched; its text is one without a body.
        parameters: the kernel's; empty: (address, number).
        roles: of warps that ask for one.
    """
    case = replace(case, function=function, kind=PipelineWarp, layouts=found.layouts, cubin=found.data)
    host = launching._host(case)
    launch = launching._launch(case, host)
    parameters = parameters or launch.params[0].to_bytes(8, "little") + case.number.to_bytes(8, "little")
    bank = (host.control.base if case.bound else 0).to_bytes(8, "little")
    threads = [thread for thread, _ in launch.start()]
    started = warps(launching.loaded(case, host), host.memory, threads, case.shape, parameters, bank, PipelineWarp)
    did = dict[tuple[int, ...], list[Seen]]()
    for warp in started:
        assert isinstance(warp, PipelineWarp)
        key, warp.roles = warp.lanes[0].thread.key, list(roles)
        warp.run()
        did[key] = warp.seen
    slabs = {slab.key: slab for slab in host.slabs()}
    return {
        key: (seen, launching._expanded(case, slabs[key]), int(slabs[key].head["count"])) if key in slabs
        else (seen, None, 0)
        for key, seen in did.items()
    }  # fmt: skip


def both(
    found: Recorded,
    function: Function,
    case: Case,
    names: Sequence[str],
    parameters: bytes = b"",
    roles: Sequence[int] = (),
) -> list[tuple[list[Seen], list[Seen]]]:
    """The operations of each warp, and its records, see ran(). names: of the regions."""
    kinds = {layout_id(name): name.split()[1] for name in names}
    result = list[tuple[list[Seen], list[Seen]]]()
    for seen, slab, _ in ran(found, function, case, parameters, roles).values():
        many = 0 if slab is None else int(slab.head["count"])
        rows = () if slab is None else slab.ring[:many]
        ends = [int(row["end"]) for row in rows]
        assert ends == sorted(ends), "records are in the order of their ends"
        assert all(row["start"] <= row["end"] for row in rows)
        result.append((seen, [(kinds[int(row["id"]) >> 4], int(row["value"])) for row in rows]))
    return result


def layout_id(name: str) -> int:
    """The hash of a name in an id."""
    from kscope.capture import layout

    return layout.record_id(name, layout.Kind.SPAN) >> 4


__all__ = ["PipelineWarp", "both", "elf"]
