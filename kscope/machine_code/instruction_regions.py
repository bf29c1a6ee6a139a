"""The regions of each instruction in a cubin recorded with placement="schedule", by the text from which the instruction
was assembled: the schedule moves instructions across clock readings, so address ranges of regions overlap. They are
text at the end of the string table, which no other tool reads:

    \\0kscope segments {"kernel": "k", "stacks": [[], ["load"]], "runs": [[0, -1], [96, 0], [112, 1]]}\\0

A run extends from its address to the next one's; its number is that of a stack, or OWN.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from ..util.json_values import dump_json
from . import elf

OWN = -1
"""Marks an instruction that kscope has inserted, or whose text is unknown."""
SECTION = ".strtab"
_MARK = b"\0kscope segments "
Stack = tuple[str, ...]


def with_segments(strings: bytes, kernel: str, stacks: Mapping[int, Stack | None]) -> bytes:
    """A string table with the regions of a kernel's instructions.

    Args:
        strings: the section's content.
        kernel: the function's name.
        stacks: regions by address, outermost first; None for OWN.
    """
    names = list(dict.fromkeys(one for one in stacks.values() if one is not None))
    number = {stack: at for at, stack in enumerate(names)}
    runs, last = list[tuple[int, int]](), OWN - 1
    for at, stack in sorted(stacks.items()):
        code = OWN if stack is None else number[stack]
        if code != last:
            runs.append((at, code))
        last = code
    return strings + _MARK + dump_json({"kernel": kernel, "stacks": names, "runs": runs}) + b"\0"


def segments(cubin: bytes, kernel: str) -> list[tuple[int, Stack | None]]:
    """The runs of a kernel, by address; none in other cubins, and if they are damaged."""
    strings = elf.read(cubin).find(SECTION)
    for text in strings.content.split(_MARK)[1:] if strings is not None else []:
        try:
            found = orjson.loads(text.partition(b"\0")[0])
            if found["kernel"] == kernel:
                stacks = [tuple(str(name) for name in stack) for stack in found["stacks"]]
                return [(int(begin), None if code == OWN else stacks[code]) for begin, code in found["runs"]]
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, IndexError):
            pass
    return []
