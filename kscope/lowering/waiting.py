"""Regions in which a warp may stay: their code waits for something, or traps. With survive=, their enters are stored at
once, so that a kernel that hangs or dies shows where its warps are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..ptx.cfg import Block, Function
from .async_issue import Code

_GUARD = r"\s*(?:@!?\s*[%\w$]+\s+)?"
_WAITS = re.compile(
    _GUARD + r"(?:mbarrier\.(?:try|test)_wait|(?:bar|barrier)\b(?:\.cta|\.cluster)?\.?(?:sync|red|wait)\b"
    r"|cp\.async\.(?:bulk\.)?wait|wgmma\.wait_group|tcgen05\.wait|griddepcontrol\.wait|nanosleep|trap|brkpt)"
)
_POLLS = re.compile(_GUARD + r"(?:ld\.(?:volatile|acquire|relaxed|mmio)|atom\.)")
"""In a loop they wait for another thread."""


def regions(function: Function, graph: Sequence[Block], depths: Mapping[int, int]) -> frozenset[str]:
    """The names of a kernel's regions whose code waits, polls memory in a loop, traps or calls, and of those with
    open=True.

    Args:
        function: the kernel.
        graph: its basic blocks.
        depths: of each enter and exit, see pairing.Pairing.
    """
    code = Code(function, graph, depths, _waits(function, graph))
    found: set[str] = set()
    for i, statement in enumerate(function.statements):
        mark = statement.mark
        if mark is None or mark.act != "enter" or mark.name in found:
            continue
        if mark.open or (i in depths and code.until_exit(i, i) != []):
            found.add(mark.name)
    return frozenset(found)


def _waits(function: Function, graph: Sequence[Block]) -> dict[int, bool]:
    """Statement index -> True, of what a warp may stay at."""
    text, found = function.text, dict[int, bool]()
    for block in graph:
        for i in range(block.first, block.last):
            one = function.statements[i]
            waits = one.sort == "call" or _WAITS.match(text, one.start, one.end) is not None
            if waits or (block.looped and _POLLS.match(text, one.start, one.end)):
                found[i] = True
    return found
