"""How many registers hold a value at each instruction, from a disassembly by `nvdisasm -plr -lrm count`.

                                  // | GPR   | PRED   | UGPR   | UPRED   |
/*0010*/   IMAD R4, R2, R3, R4 ;  // |   15  |   1    |    4   |         |
"""

from __future__ import annotations

import re

from .source_lines import SECTION

_COUNTED = re.compile(r"/\*([0-9a-f]{4,})\*/\s.*//\s*\|\s*([0-9]*)\s*\|")


def live_registers(text: str) -> dict[str, dict[int, int]]:
    """By function and offset: general registers that hold a value there; 0 if the disassembler did not count them."""
    found: dict[str, dict[int, int]] = {}
    own: dict[int, int] = {}
    for line in text.splitlines():
        if match := SECTION.match(line):
            own = found.setdefault(match[1] or match[2], {})
        elif match := _COUNTED.search(line):
            own[int(match[1], 16)] = int(match[2] or 0)
    return found
