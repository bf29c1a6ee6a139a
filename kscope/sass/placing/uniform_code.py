"""Finds the code that all lanes of a warp run equally often, and the predicates that they share."""

from __future__ import annotations

import re

from ...ptx import cfg
from .basic_blocks import Text

_SYNC = re.compile(
    r"\s*(?:(?:elect|bar\.warp|shfl|vote|match|redux|activemask)\.(?:\w+\.)*?(?:sync|warp)[^;]*?,?\s*(?:-1|0xffffffff|4294967295)\s*;"
    r"|bar\.warp\.sync\s+(?:-1|0xffffffff);|wgmma\.[\w.]+\.aligned|setmaxnreg\.)",
    re.I,
)
"""Instructions that all 32 lanes of a warp execute together."""
_COMPARED = re.compile(r"\s*setp\.(lt|ge)\.[us]32\s+(%p\d+)\s*,\s*(%r\d+)\s*,\s*(\d+)\s*;")
_MASKED = re.compile(r"\s*and\.b32\s+(%r\d+)\s*,\s*(%r\d+)\s*,\s*(\d+)\s*;")
_THREAD = re.compile(r"\s*mov\.u32\s+(%r\d+)\s*,\s*%tid\.x\s*;")
_LANES = 32


def runs_uniformly(text: Text, block: int) -> bool:
    """True if the lanes of a warp run a block equally often: a block that runs as often as it synchronizes them."""
    kernel, order = text.labels.kernel, text.flow.group
    if block not in order:
        return False
    return any(
        not kernel.statements[one].predicate
        and _SYNC.match(kernel.text, kernel.statements[one].start, kernel.statements[one].end)
        for other in text.flow.alike[order[block]]
        for one in text.within(other)
    )


def is_warp_uniform(kernel: cfg.Function, predicate: str) -> bool:
    """True if all lanes of a warp agree on a predicate: it compares the thread's number with that of a warp."""
    name = predicate.lstrip("!")
    compared = [found for found in _matches(kernel, _COMPARED) if found[2] == name]
    if len(compared) != 1 or int(compared[0][4]) % _LANES or not kernel.has_flat_blocks:
        return False
    if sum(name in found for found in _written(kernel)) != 1:
        return False
    return _counts_threads(kernel, compared[0][3])


def _counts_threads(kernel: cfg.Function, register: str) -> bool:
    """True if a register has the number of the thread, or at least its lowest five bits, the lane's."""
    if sum(register in found for found in _written(kernel)) != 1:
        return False
    if any(found[1] == register for found in _matches(kernel, _THREAD)):
        return True
    masked = [found for found in _matches(kernel, _MASKED) if found[1] == register]
    return (
        bool(masked)
        and int(masked[0][3]) + 1 & int(masked[0][3]) == 0
        and int(masked[0][3]) % _LANES == (_LANES - 1)
        and _counts_threads(kernel, masked[0][2])
    )


def _matches(kernel: cfg.Function, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    found = (pattern.match(kernel.text, one.start, one.end) for one in kernel.statements if not one.predicate)
    return [one for one in found if one is not None]


_RESULT = re.compile(r"\s*(?!\.)(?:@!?\s*[%\w$]+\s+)?[\w.:]+\s+(\{[^}]*\}|[^,;]*)")


def _written(kernel: cfg.Function) -> list[set[str]]:
    """The registers that each statement may write."""
    found = (_RESULT.match(kernel.text, one.start, one.end) for one in kernel.statements if one.mark is None)
    return [set(re.findall(r"[%\w$]+", one[1])) if one else set() for one in found]
