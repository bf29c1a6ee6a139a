"""The addresses of control blocks in machine code."""

from __future__ import annotations

from kscope.capture import wire
from kscope.machine_code import control_words, elf


def addresses(cubin: bytes) -> list[int]:
    """The address in the moves of each kernel that has them."""
    file, found = elf.read(cubin), list[int]()
    for one in control_words.moves(cubin):
        section = file.find(f".text.{one.kernel}")
        assert section is not None
        low, high = (int.from_bytes(section.content[at + 4 : at + 8], "little") for at in (one.low, one.high))
        found.append(low | high << 32)
    return found


def constant(cubin: bytes) -> int:
    """The word in the module's constant."""
    file = elf.read(cubin)
    (symbol,) = (one for one in file.symbols() if one.name == wire.CTL_SYMBOL)
    at = symbol.value
    return int.from_bytes(file.sections[symbol.section].content[at : at + 8], "little")
