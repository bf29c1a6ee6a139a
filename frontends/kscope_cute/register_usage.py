"""Register usage read from a cubin: registers, stack, and whether it contains setmaxnreg.

CuTe DSL's built-in assembler prints no `ptxas -v` output.
"""

from __future__ import annotations

import struct

from kscope.lowering.register_usage import Usage
from kscope.machine_code import elf
from kscope.sass.cubin import attributes

_SETMAXREG, _OPCODE = 0x9C8, 0xFFF  # USETMAXREG, sm_90 to sm_100: the low 12 bits of 128


def usage(cubin: bytes, has_setmaxnreg: bool) -> Usage:
    """Register usage of a cubin.

    Args:
        cubin: the ELF.
        has_setmaxnreg: True if its PTX contains setmaxnreg.

    Returns:
        The usage; spill_bytes is the stack of all functions, user arrays included: what marks add to it is spilled.
    """
    registers, stack = 0, 0
    file = elf.read(cubin)
    about = file.find(".nv.info")
    for one in attributes.read(about.content if about is not None else b""):
        value = int.from_bytes(one.payload[4:], "little")  # after the index of the function's symbol
        if one.number == attributes.REGISTERS:
            registers = max(registers, value)
        elif one.number == attributes.FRAME:
            stack += value
    ignored = has_setmaxnreg and not any(
        _sets_max_registers(one.content) for one in file.sections if one.name.startswith(".text.")
    )
    return Usage(ignored, stack, registers)


def _sets_max_registers(code: bytes) -> bool:
    return any(word & _OPCODE == _SETMAXREG for (word,) in struct.iter_unpack("<Q8x", code))
