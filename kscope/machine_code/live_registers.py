"""How many registers hold a value at each instruction, from a disassembly by `nvdisasm -plr -lrm count`.

                                  // | GPR   | PRED   | UGPR   | UPRED   |
/*0010*/   IMAD R4, R2, R3, R4 ;  // |   15  |   1    |    4   |         |
"""

from __future__ import annotations

import re

from .source_lines import by_offset

_COUNTED = re.compile(r"/\*([0-9a-f]{4,})\*/\s.*//\s*\|\s*([0-9]*)\s*\|")


def live_registers(text: str) -> dict[str, dict[int, int]]:
    """By function and offset: general registers that hold a value there; 0 if the disassembler did not count them."""
    return by_offset(text, _COUNTED, lambda found: int(found or 0))
