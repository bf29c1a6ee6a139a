"""Register usage read from a cubin: registers, stack, and whether it contains setmaxnreg.

CuTe DSL's built-in assembler prints no `ptxas -v` output.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from kscope.lowering.usage import Usage
from kscope.machine_code.elf import sections

_SVAL, _REGCOUNT, _FRAME_SIZE = 0x04, 0x2F, 0x11  # .nv.info: one format and two attributes
_SETMAXREG, _OPCODE = 0x9C8, 0xFFF  # USETMAXREG, sm_90 to sm_100: the low 12 bits of 128


def usage(cubin: bytes, has_setmaxnreg: bool) -> Usage:
    """Register usage of a cubin.

    Args:
        cubin: the ELF.
        has_setmaxnreg: whether its PTX contains setmaxnreg.

    Returns:
        The usage; spill_bytes is the stack of all functions, user arrays included: what marks add to it is spilled.
    """
    registers, stack = 0, 0
    for attribute, value in _info(dict(sections(cubin)).get(".nv.info", b"")):
        if attribute == _REGCOUNT:
            registers = max(registers, value)
        elif attribute == _FRAME_SIZE:
            stack += value
    ignored = has_setmaxnreg and not any(
        _sets_max_registers(code) for name, code in sections(cubin) if name.startswith(".text.")
    )
    return Usage(ignored, stack, registers)


def _info(content: bytes) -> Iterator[tuple[int, int]]:
    """(attribute, value) of each per-function entry of .nv.info."""
    at = 0
    while at + 4 <= len(content):
        form, attribute, size = struct.unpack_from("<BBH", content, at)
        at += 4
        if form == _SVAL:
            if size == 8:
                yield attribute, struct.unpack_from("<I", content, at + 4)[0]
            at += size


def _sets_max_registers(code: bytes) -> bool:
    return any(word & _OPCODE == _SETMAXREG for (word,) in struct.iter_unpack("<Q8x", code))
