"""Regions in which a warp may stay: their code waits for something, or traps. With survive=, their enters are stored at
once, so that a kernel that hangs or dies shows where its warps are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

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
    code = _Waits(function, graph, depths)
    found: set[str] = set()
    for i, statement in enumerate(function.statements):
        mark = statement.mark
        if mark is None or mark.act != "enter" or mark.name in found:
            continue
        if mark.open or (i in depths and code.until_exit(i, i) != []):
            found.add(mark.name)
    return frozenset(found)


@dataclass(frozen=True)
class _Waits(Code[bool]):
    """A kernel with what a warp may stay at."""

    @cached_property
    def events(self) -> dict[int, bool]:
        """Statement index -> True, of waits."""
        text, found = self.function.text, dict[int, bool]()
        for block in self.graph:
            for i in range(block.first, block.last):
                one = self.function.statements[i]
                waits = one.sort == "call" or _WAITS.match(text, one.start, one.end) is not None
                if waits or (block.looped and _POLLS.match(text, one.start, one.end)):
                    found[i] = True
        return found
