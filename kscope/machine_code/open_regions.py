"""Finds the regions that are open at each instruction of a function."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from .disassembly import Function, Instruction, Site

_JUMPS = ("BRA", "JMP", "BREAK")
_ENDS = ("EXIT", "RET", "KILL", "BRX", "JMX", "BRXU")


def open_regions(function: Function, sites: Sequence[Site]) -> list[tuple[str, ...]]:
    """The open regions of each instruction, outermost first.

    A region is open from its begin's clock read to its end's on every path, wherever the compiler has put the code
    between them: the loop of a wait is often placed after the kernel's end. The wait of a clock read belongs to the
    regions that were open before.

    Args:
        function: the code.
        sites: its regions' clock reads, of sass.sites().
    """
    code = function.instructions
    names = sorted({site.region for site in sites})
    bit = {name: 1 << number for number, name in enumerate(names)}
    begins, ends = defaultdict[int, int](int), defaultdict[int, int](int)
    for site in sites:
        begins[site.begin] |= bit[site.region]
        ends[site.end] |= bit[site.region]
    state = _states(code, function.jumps, begins, ends)
    masks = [_by_address(one.at, sites, bit) if mask is None else mask for one, mask in zip(code, state, strict=True)]
    size = {name: sum(bool(mask & bit[name]) for mask in masks) for name in names}
    order = sorted(names, key=lambda name: -size[name])  # an outer region has more instructions
    seen: dict[int, tuple[str, ...]] = {}
    return [seen.setdefault(mask, tuple(name for name in order if mask & bit[name])) for mask in masks]


def _states(
    code: Sequence[Instruction], jumps: Mapping[int, int], begins: Mapping[int, int], ends: Mapping[int, int]
) -> list[int | None]:
    """Regions that are open on every path to each instruction, as bits; None where no path is known."""
    index = {one.at: number for number, one in enumerate(code)}
    state: list[int | None] = [None] * len(code)
    work: list[tuple[int, int]] = [(0, 0)] if code else []
    while work:
        at, mask = work.pop()
        while at < len(code):
            before = state[at]
            joined = mask if before is None else mask & before
            if joined == before:
                break
            state[at], one = joined, code[at]
            # a read that ends one region may begin the next
            mask = (joined & ~ends.get(one.at, 0)) | begins.get(one.at, 0)
            target = index.get(jumps.get(one.at, -1))
            if target is not None and (one.name in _JUMPS or one.name == "CALL"):
                work.append((target, mask))
            always = not one.guarded and (one.name in _ENDS or (one.name in _JUMPS and len(one.operands) == 1))
            if always:
                break
            at += 1
    return state


def _by_address(at: int, sites: Sequence[Site], bit: dict[str, int]) -> int:
    """Regions by address, for code after indirect branches."""
    mask = 0
    for site in sites:
        if site.begin < at <= site.end:
            mask |= bit[site.region]
    return mask
