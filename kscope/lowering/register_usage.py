"""An assembler's report on the registers of a text, and its difference to the plain kernel's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..capture.model import Problem
from ..machine_code.occupancy import warps_by_registers
from .occupancy import Limits

_SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'(?:(?!Compiling entry).)*?Used (\d+) registers", re.S)
_IGNORED = re.compile(r"setmaxnreg'?\s+ignored")


@dataclass(frozen=True, order=True)
class Usage:
    """An assembler's report on a text; smaller is better.

    Attributes:
        setmaxnreg_ignored: the assembler ignored setmaxnreg.
        spill_bytes: per thread, summed over functions.
        registers: the most of any kernel.
        entries: registers by kernel, if the log has them.
    """

    setmaxnreg_ignored: bool
    spill_bytes: int
    registers: int
    entries: tuple[tuple[str, int], ...] = field(default=(), compare=False)

    @property
    def pressed(self) -> bool:
        """True if the text needs more registers than it gets."""
        return self.setmaxnreg_ignored or self.spill_bytes > 0

    def no_worse(self, other: Usage) -> bool:
        """True if this text spills no more than the other and ignores setmaxnreg no more; registers within the limit
        are free.
        """
        return (self.setmaxnreg_ignored, self.spill_bytes) <= (other.setmaxnreg_ignored, other.spill_bytes)

    def lowers_occupancy(self, other: Usage) -> bool:
        """True if this text spills more than the other, or leaves room on an SM for fewer of a kernel's warps."""
        mine = dict(self.entries)
        pairs = [(mine.get(name, self.registers), count) for name, count in other.entries]
        fewer = any(
            warps_by_registers(own) < warps_by_registers(count)
            for own, count in pairs or [(self.registers, other.registers)]
        )
        return fewer or not self.no_worse(other)

    def fell_back_to_spilling(self, plain: Usage) -> bool:
        """True if the assembler spills although it uses fewer registers than without records. For a kernel that does
        not fit into 255 registers it may aim at 32 warps per SM instead, and spill the rest.
        """
        return self.spill_bytes > plain.spill_bytes and self.registers < plain.registers


def read_log(log: str) -> Usage:
    """The report in an assembler's verbose log: ptxas -v, or nvJitLink's -verbose."""
    spilled = sum(int(stores) + int(loads) for stores, loads in _SPILL.findall(log))
    registers = max(map(int, _REGISTERS.findall(log)), default=0)
    entries = tuple((name, int(count)) for name, count in _ENTRY.findall(log))
    return Usage(_IGNORED.search(log) is not None, spilled, registers, entries)


def lost_blocks(plain: Usage, marked: Usage, limits: Mapping[str, Limits]) -> Problem | None:
    """A problem if a cooperative kernel gets no marks; None if as many of its blocks fit on an SM with marks as
    without.
    """
    for name, (before, after), _ in _blocks(plain, marked, limits):
        if after < before:
            text = (
                f"kernel {name}: its regions are not recorded, because it is launched cooperatively and with them "
                f"{after} instead of {before} blocks fit on an SM: fewer regions need fewer registers"
            )
            return Problem("cooperative", text, kernel=name)
    return None


def change(kernels: Sequence[str], plain: Usage, marked: Usage, limits: Mapping[str, Limits]) -> Problem | None:
    """The registers that the regions cost the kernels, or gained them, as a problem; None if nothing that matters."""
    losses: list[str] = []
    gains: list[str] = []
    spilled = marked.spill_bytes - plain.spill_bytes
    if spilled:
        more = f"{abs(spilled)} {'more' if spilled > 0 else 'fewer'} bytes of registers spill"
        (losses if spilled > 0 else gains).append(more)
    if marked.setmaxnreg_ignored != plain.setmaxnreg_ignored:
        (losses if marked.setmaxnreg_ignored else gains).append(
            f"setmaxnreg is {'ignored' if marked.setmaxnreg_ignored else 'no longer ignored'}"
        )
    for _, (before, after), (registers, more_registers) in _blocks(plain, marked, limits):
        if before != after:
            (losses if after < before else gains).append(
                f"{after} instead of {before} blocks fit on an SM ({more_registers} instead of {registers}"
                " registers per thread)"
            )
    if not losses + gains:
        return None
    remedy = "it may be faster than without them: `kscope trust perturb` compares both"
    remedy = remedy if gains else "fewer regions, or ones outside the innermost loop, cost less"
    text = f"kernel {', '.join(kernels)}: with its regions {' and '.join(losses + gains)}; {remedy}"
    kind = "occupancy" if marked.no_worse(plain) and not spilled else "registers"
    return Problem(kind, text, kernel=kernels[0] if len(kernels) == 1 else None)


def _blocks(
    plain: Usage, marked: Usage, limits: Mapping[str, Limits]
) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    """Each kernel's blocks per SM and registers per thread, both without and with marks."""
    with_marks = dict(marked.entries)
    for name, registers in plain.entries:
        if name in limits and name in with_marks:
            both = registers, with_marks[name]
            yield name, (limits[name].blocks(both[0]), limits[name].blocks(both[1])), both
