"""Source lines of instructions in a disassembly by `nvdisasm -gi`, their texts and live registers, and the source
lines of regions.

//## File "/home/me/k.py", line 7 inlined at "/home/me/k.py", line 20
//## File "/home/me/k.py", line 20
        /*0010*/ ...
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from ..capture.samples import Place

Value = TypeVar("Value")
_AT = re.compile(r'(?:File|inlined at) "([^"]*)", line ([0-9]+)')
_SECTION = re.compile(r"^\s*(?:\.section\s+\.text\.([^,\s]+)\s*,|Function : (\S+))")
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
_COUNTED = re.compile(r"/\*([0-9a-f]{4,})\*/\s.*//\s*\|\s*([0-9]*)\s*\|")
_COMMENT = "//##"
_MOST_BYTES = 4 << 20


def lines(text: str) -> dict[str, dict[int, tuple[Place, ...]]]:
    """By function and offset: the line, then the calls that were inlined around it; none for other instructions."""
    found: dict[str, dict[int, tuple[Place, ...]]] = {}
    own: dict[int, tuple[Place, ...]] = {}
    chain, continued = list[Place](), False
    for line in text.splitlines():
        if match := _SECTION.match(line):
            own, chain, continued = found.setdefault(match[1] or match[2], {}), [], False
        elif (comment := line.find(_COMMENT)) >= 0:
            if not continued:
                chain = []
            for file, number in _AT.findall(line, comment):
                if (file, int(number)) not in chain[-1:]:
                    chain.append((file, int(number)))
            continued = True
        elif match := _INSTRUCTION.search(line):
            continued = False
            if chain:
                own[int(match[1], 16)] = tuple(chain)
    return found


def texts(text: str) -> dict[str, dict[int, str]]:
    """By function and offset: the instruction as the disassembler prints it."""
    return _by_offset(text, _INSTRUCTION, lambda found: " ".join(found.split()))


def live_registers(text: str) -> dict[str, dict[int, int]]:
    """By function and offset, in the output of `nvdisasm -plr -lrm count`: general registers that hold a value there; 0
    if the disassembler did not count them.

                                      // | GPR   | PRED   | UGPR   | UPRED   |
    /*0010*/   IMAD R4, R2, R3, R4 ;  // |   15  |   1    |    4   |         |
    """
    return _by_offset(text, _COUNTED, lambda found: int(found or 0))


def _by_offset(text: str, line_of: re.Pattern[str], value: Callable[[str], Value]) -> dict[str, dict[int, Value]]:
    """Map function and offset to the part of an instruction's line, after the offset, that a pattern matches."""
    found: dict[str, dict[int, Value]] = {}
    own: dict[int, Value] = {}
    for line in text.splitlines():
        if match := _SECTION.match(line):
            own = found.setdefault(match[1] or match[2], {})
        elif match := line_of.search(line):
            own[int(match[1], 16)] = value(match[2])
    return found


def body(where: str | None) -> tuple[str, int, int] | None:
    """File, first and last line of the `with` statement at "file:line"; None for other code."""
    file, _, number = (where or "").rpartition(":")
    if not file.endswith(".py") or not number.isdecimal():
        return None
    for first, last in _statements(file):
        if first == int(number):
            return file, first, last
    return None


@lru_cache(maxsize=64)
def _statements(file: str) -> tuple[tuple[int, int], ...]:
    try:
        path = Path(file)
        if path.stat().st_size > _MOST_BYTES:
            return ()
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    return tuple((one.lineno, one.end_lineno or one.lineno) for one in ast.walk(tree) if isinstance(one, ast.With))
