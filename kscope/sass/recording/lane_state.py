"""Registers that hold a lane's recording state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..cubin.insertion import New
from ..encoding import writing


@dataclass(frozen=True)
class State:
    """Registers that hold a lane's recording state, from the claim to the exits.

    Attributes:
        base: low word of its slab's address: a register; or the first of two uniform ones, with the whole address,
            where one lane of a warp records.
        address: an even register: address of the next record without the head; the next register holds the high
            word, 0 in lanes that do not record. With a uniform base, one register for the offset from there.
        offset: 16 times the records so far.
        descriptor: first of two uniform registers with the descriptor of global memory, for the gate's load, and
            for stores of a kernel whose base is not uniform; other kernels keep the base in these after the gate's
            load.
        clocks: the entry's clocks as the seal needs them; a register like base.
        last: offset of the last place in the slab's ring, a register like base; None if it is the same in every launch.
        on: predicate: this lane records; None if the kernel leaves none free.
        scoreboard: counts stores until their operands were read.
        spare: a register for a saved predicate; None if the kernel leaves predicates free.
        extra: records of rows so far, less the number of rows; None where they are not counted.
        mine: with a uniform base, a register that is 0 in lanes that do not record; None if a predicate shows them.
        arch: the architecture of the kernel.
        zeros: registers that are 0 from the claim on, for deferred records, see deferring.py.
        addresses: more registers like `address`, for records that are stored together.
        warp_flags: uniform registers, of records that are stored later.
    """

    base: str
    address: int
    offset: int
    descriptor: int
    clocks: str
    last: str | None
    on: int | None
    scoreboard: int
    spare: int | None = None
    extra: int | None = None
    arch: int = 90
    mine: int | None = None
    zeros: tuple[int, ...] = ()
    addresses: tuple[int, ...] = ()
    warp_flags: tuple[int, ...] = ()

    @property
    def new(self) -> Callable[..., New]:
        """writing.new() for the architecture."""
        return partial(writing.new, arch=self.arch)

    @property
    def registers(self) -> frozenset[int]:
        """Every R register of these."""
        high = self.mine if self.uniform else self.address + 1
        some = (self.address, high, self.offset, self.spare, self.extra, *self.zeros, *self.addresses)
        named = (int(one[1:]) for one in (self.base, self.clocks, self.last) if one is not None and one[0] == "R")
        return frozenset(one for one in some if one is not None) | frozenset(named)

    @property
    def uniform(self) -> frozenset[int]:
        """The uniform registers of the state; the descriptor's are among these or unused."""
        if self.base[:2] != "UR":
            return frozenset()
        first = int(self.base[2:])
        return frozenset({first, first + 1, *(int(one[2:]) for one in (self.clocks, self.last) if one)})

    @property
    def warp_wide(self) -> frozenset[int]:
        """Every uniform register that is not the kernel's."""
        return self.uniform | {self.descriptor, self.descriptor + 1, *self.warp_flags}

    @property
    def lane(self) -> int:
        """The register that is 0 in lanes that do not record, in a kernel without a predicate for it."""
        found = self.mine if self.uniform else self.address + 1
        assert found is not None
        return found

    def place(self, head: int, register: str = "") -> str:
        """The operand of a store into the slab.

        Args:
            head: bytes from the slab's begin, or from `register` on.
            register: the offset from there if the base is uniform; else, it is in `address`.
        """
        if self.uniform:
            return f"[{register or f'R{self.address}'}.U32+{self.base}+{head:#x}]"
        return f"desc[UR{self.descriptor}][R{self.address}.64+{head:#x}]"
