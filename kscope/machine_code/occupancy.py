"""Blocks and warps of a kernel that fit on an SM: by warps, blocks, registers and shared memory.

Figures are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

from dataclasses import dataclass

_RESERVED, _SHARED_UNIT = 1024, 128
"""Bytes of shared memory that each block occupies in addition, and the unit of its allocation."""
_PARTITIONS, _REGISTERS, _REGISTER_UNIT = 4, 16384, 256
"""Partitions of an SM; registers of each, and the unit in which they are allocated to a warp."""


@dataclass(frozen=True)
class Sm:
    """Capacity of one SM.

    Attributes:
        warps, blocks: most that are resident.
        shared: bytes of shared memory.
    """

    warps: int
    blocks: int
    shared: int

    def fitting(self, registers: int, shared: int, warps: int) -> int:
        """Blocks of this many warps that fit.

        Args:
            registers: per thread.
            shared: bytes per block, static and dynamic.
            warps: per block.
        """
        occupied = -(-(shared + _RESERVED) // _SHARED_UNIT) * _SHARED_UNIT
        by_registers = warps_by_registers(registers) // warps
        return min(self.blocks, self.warps // warps, by_registers, self.shared // occupied)


LARGEST = Sm(64, 32, 228 << 10)
SMS = {
    75: Sm(32, 16, 64 << 10),
    80: Sm(64, 32, 164 << 10),
    86: Sm(48, 16, 100 << 10),
    87: Sm(48, 16, 164 << 10),
    89: Sm(48, 24, 100 << 10),
    90: LARGEST,
    100: LARGEST,
    103: LARGEST,
    120: Sm(48, 24, 100 << 10),
    121: Sm(48, 24, 100 << 10),
}
"""By compute capability."""


def warps_by_registers(registers: int) -> int:
    """Warps per SM that the register files have room for, with this many registers per thread.

    Each of four partitions has 16,384 registers, allocates them to a warp in units of 256, and holds at most 16 warps.
    """
    of_warp = -(-max(registers, 1) * 32 // _REGISTER_UNIT) * _REGISTER_UNIT
    return _PARTITIONS * min(16, _REGISTERS // of_warp)
