"""Work of machine code: bytes and floating-point operations of a region's instructions, for a warp with all its lanes.
Only amounts that instructions encode are counted: the size of a TMA copy and of a tcgen05 product is in a descriptor,
and a region with one is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..capture.samples import CodeWork
from ..util.grouping import grouped
from .disassembly import Function, Instruction, Site, Sites

_LANES = 32
_GLOBAL = ("LDG", "STG", "LD", "ST", "LDGSTS", "ATOMG", "ATOM", "RED", "REDG")
_SHARED = ("LDS", "STS", "ATOMS")
_MATRICES = ("LDSM", "STSM")
_MATRIX_BYTES = 128
"""Bytes of one of the 8x8 matrices that LDSM and STSM move."""
_FLOPS = {
    **dict.fromkeys(("FADD", "FMUL", "DADD", "DMUL"), 1),
    **dict.fromkeys(("FFMA", "DFMA", "FADD2", "FMUL2", "HADD2", "HMUL2"), 2),
    **dict.fromkeys(("FFMA2", "HFMA2"), 4),
}
"""Operations of a lane."""
_SHAPE = re.compile(r"\.(\d+)x(\d+)x(\d+)\b")
_PACKED = {"16816": (16, 8, 16), "1688": (16, 8, 8), "16832": (16, 8, 32), "16864": (16, 8, 64), "884": (8, 8, 4)}
_MMA = ("HMMA", "DMMA", "QMMA", "OMMA")
_WARP_GROUP_MMA = ("HGMMA", "QGMMA")
_UNKNOWN = ("UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED", "UTCHMMA", "UTCQMMA", "UTCOMMA")
_WIDTHS = (("256", 32), ("128", 16), ("64", 8), ("U8", 1), ("S8", 1), ("U16", 2), ("S16", 2))


def region_work(function: Function, sites: Sites) -> dict[str, CodeWork]:
    """The work of each region of a function, with that of the regions in it."""
    found = {}
    for region, places in grouped((site.region, site) for site in sites.sites).items():
        if region in sites.unresolved:
            continue
        works = [_of_place(function, site, sites.stores) for site in places]
        first = next((one for one in works if one.unknown), works[0])
        if any(one != first for one in works) and not first.unknown:
            first = CodeWork(matrix=any(one.matrix for one in works), unknown="its places in the code differ")
        found[region] = first
    return found


def _of_place(function: Function, site: Site, stores: frozenset[int]) -> CodeWork:
    inside = [one for one in function.instructions if site.begin < one.at < site.end and one.at not in stores]
    matrix = any(one.name in (*_MMA, *_WARP_GROUP_MMA) for one in inside)
    why = next(_reasons(inside, site), "")
    if why:
        return CodeWork(matrix=matrix, unknown=why)
    moved, shared, flops = (sum(map(count, inside)) for count in (_global, _shared, _flops))
    most = any(one.guarded and (_global(one) or _shared(one) or _flops(one)) for one in inside)
    return CodeWork(moved, shared, flops, matrix, most)


def _reasons(inside: list[Instruction], site: Site) -> Iterator[str]:
    if not site.straight:
        yield "it has branches"
    for one in inside:
        if one.name in _UNKNOWN:
            yield f"the code does not show how much {one.name} moves or computes"
        if one.name in (*_MMA, *_WARP_GROUP_MMA) and not _flops(one):
            yield f"the shape of {one.code} is not known"


def _width(one: Instruction) -> int:
    return next((size for word, size in _WIDTHS if f".{word}" in f"{one.code}."), 4)


def _global(one: Instruction) -> int:
    return _LANES * _width(one) if one.name in _GLOBAL else 0


def _shared(one: Instruction) -> int:
    if one.name in _MATRICES:
        count = next((int(part) for part in reversed(one.code.split(".")) if part in "124"), 1)
        return _MATRIX_BYTES * count
    return _LANES * _width(one) if one.name in (*_SHARED, "LDGSTS") else 0


def _flops(one: Instruction) -> int:
    if one.name in _MMA:
        shape = next((_PACKED[part] for part in one.code.split(".") if part in _PACKED), (0, 0, 0))
        return 2 * shape[0] * shape[1] * shape[2]
    if one.name in _WARP_GROUP_MMA:
        if (match := _SHAPE.search(one.code)) is None:
            return 0
        m, n, k = (int(part) for part in match.groups())
        return 2 * m * n * k // 4  # of a warp of the group
    if one.name == "HFMA2" and one.operands[1:3] == ("-RZ", "RZ"):
        return 0  # loads a constant
    return _LANES * _FLOPS.get(one.name, 0)
