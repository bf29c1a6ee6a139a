"""Finds regions in which a warp may stay: their code waits, or traps. With survive=, their enters are stored at once,
so that a kernel that hangs or dies shows where its warps are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..ptx.cfg import Block, Function
from .async_issue import GUARD, Code

_OTHERS = re.compile(
    GUARD + r"(?:mbarrier\.(?:try|test)_wait|(?:bar|barrier)\b(?:\.cta|\.cluster)?\.?(?:sync|red|wait)\b"
    r"|griddepcontrol\.wait|nanosleep|trap|brkpt)"
)
_BLOCK = r"(?:bar|barrier)(?:\.cta)?\.sync(?:\.aligned)?\s+0\s*;"
_OF_ALL_WARPS = re.compile(r"\s*" + _BLOCK)
"""The barrier of the whole block, without a predicate."""
_OWN = re.compile(GUARD + rf"(?:cp\.async\.(?:bulk\.)?wait|wgmma\.wait_group|tcgen05\.wait|{_BLOCK})")
"""Waits that end unless another warp hangs."""
_POLLS = re.compile(GUARD + r"(?:ld\.(?:volatile|acquire|relaxed|mmio)|atom\.)")
"""Accesses that, in a loop, wait for another thread."""


def regions(function: Function, graph: Sequence[Block], depths: Mapping[int, int]) -> frozenset[str]:
    """The names of a kernel's regions whose code waits, polls memory in a loop, traps or calls, and of those with
    open=True.

    A region that begins in a loop would be stored in every iteration (4 to 9 % of a matmul on an H200). There, only
    waits count that need another warp or the host: not those for the warp's own asynchronous work, nor the barrier of
    the whole block. Regions that auto= placed are stored wherever they wait, but not the operations of auto="pipeline".

    Args:
        function: the kernel.
        graph: its basic blocks.
        depths: of each enter and exit, see pairing.Pairing.
    """
    code = Code(function, graph, depths, waits(function, graph))
    looped = {i for block in graph if block.looped for i in range(block.first, block.last)}
    found: set[str] = set()
    for i, statement in enumerate(function.statements):
        mark = statement.mark
        if mark is None or mark.act != "enter" or mark.how == "pipeline" or mark.name in found:
            continue
        if mark.open or (i in depths and _may_last(code, i, every=i not in looped or mark.origin == "auto")):
            found.add(mark.name)
    return frozenset(found)


def _may_last(code: Code[bool], enter: int, *, every: bool) -> bool:
    """True if a region's code waits. every: include waits that end by themselves."""
    inside = code.until_exit(enter, enter)
    return inside is None or any(every or code.events[i] for i in inside)


def first_waits(function: Function, graph: Sequence[Block]) -> frozenset[int]:
    """Indices of the waits before which a warp's first enter is stored, where no branch comes first.

    The barrier of the whole block without a predicate is left out: before the first branch, every warp comes to it
    unless one stays at an earlier wait. Triton places one between the loads of two stages, where warps would wait for
    their slabs.
    """
    text, statements = function.text, function.statements
    found = waits(function, graph)
    return frozenset(i for i in found if not _OF_ALL_WARPS.match(text, statements[i].start, statements[i].end))


def waits(function: Function, graph: Sequence[Block]) -> dict[int, bool]:
    """Statement index of each wait, trap and call -> True if it needs another warp or the host to end."""
    text, found = function.text, dict[int, bool]()
    for block in graph:
        for i in range(block.first, block.last):
            one = function.statements[i]
            polls = block.looped and _POLLS.match(text, one.start, one.end)
            if _OWN.match(text, one.start, one.end):
                found[i] = False
            elif polls or one.sort == "call" or _OTHERS.match(text, one.start, one.end):
                found[i] = True
    return found
