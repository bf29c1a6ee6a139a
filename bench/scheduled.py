"""The assembler's schedule of a loop: its instructions, and the stall cycles encoded in each.

From sm_70 on an instruction has 128 bits, of which bits 105 to 108 are these cycles (Jia, Maggioni, Staiger and
Scarpazza, "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018, section 2.1). Waits for memory
and for other warps come on top.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from on_regions import span_of

from kscope.machine_code import tools

_INSTRUCTION = re.compile(
    r"/\*(?P<at>[0-9a-f]{4,})\*/\s+(?P<text>[^;]+);\s*/\* 0x[0-9a-f]{16} \*/\s*/\* 0x(?P<high>[0-9a-f]{16}) \*/"
)
_STALL = 105 - 64
"""The lowest of the four bits, counted within the upper 64."""


@dataclass(frozen=True)
class Loop:
    """instructions: as text, in order of address. cycles: of one iteration, without other waits."""

    instructions: tuple[str, ...]
    cycles: int


def loops(cubin: Path, work: dict[str, int]) -> dict[str, Loop]:
    """By kernel, the loop with all of the work; kernels without such a loop are left out."""
    command = [tools.find("cuobjdump"), "-sass", str(cubin)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {}
    for part in text.split("Function :")[1:]:
        name, _, body = part.partition("\n")
        code = [(int(one["at"], 16), one["text"].strip(), one["high"]) for one in _INSTRUCTION.finditer(body)]
        if span := span_of([(at, instruction) for at, instruction, _ in code], work):
            inside = [one for one in code if span[0] <= one[0] <= span[1]]
            cycles = sum(int(high, 16) >> _STALL & 15 for _, _, high in inside)
            found[name.strip()] = Loop(tuple(one for _, one, _ in inside), cycles)
    return found
