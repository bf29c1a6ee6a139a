"""Empty regions, whose work the compiler moved elsewhere: no instruction is left between their clock reads.

A clock read keeps its place among other clock reads and most accesses to memory, but arithmetic may move across it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ..capture import layout
from ..capture.model import Problem
from ..errors import FormatError, MissingError
from ..machine_code import disassembly, tools
from ..marks.names import format_name
from ..ptx import cfg
from . import metadata_patch
from .lowered import Lowered, SourceInfo

MAX_CUBIN = 1 << 20
"""Bytes of a cubin that is disassembled at most: about a second."""

_PURE = re.compile(
    r"(?:@!?\s*[%\w$]+\s+)?(?:\.reg|add|sub|mul|mul24|mad|mad24|fma|div|rem|min|max|abs|neg|and|or|xor|not|cnot|shl|shr|shf"
    r"|lop3|prmt|bfe|bfi|bfind|brev|clz|popc|sad|cvt|cvta|mov|setp|set|selp|slct|ex2|lg2|sin|cos|tanh|rcp|sqrt|rsqrt"
    r"|copysign|testp|dp4a|dp2a|mma|wmma\.mma|ld\.(?:param|const|shared(?:::cta)?|global(?:\.\w+)*\.nc))\b"
)
"""Arithmetic, tensor cores' too, and loads of parameters, constants, shared and read-only memory."""
_READS_CLOCK = re.compile(r"%(?:clock|globaltimer)")


def with_problems(
    lowered: Lowered, text: str, cubin: Callable[[str], bytes | None], source: SourceInfo | None = None
) -> Lowered:
    """The result of a lowering, with a problem `empty` for each region that has no instruction.

    Only regions of arithmetic, and of loads that no store of the kernel's changes, are looked at, so most kernels are
    not disassembled.

    Args:
        lowered: the result.
        text: the PTX that was lowered.
        cubin: assembles the lowered text, mostly from a cache; None if that is impossible.
        source: as for lower().
    """
    if lowered.cubin is not None:  # its marks moved no instruction
        return lowered
    regions = {region.name for region in lowered.meta.regions if region.origin != "auto"}
    found = [(function, names) for function in _marked(text) if (names := _arithmetic(function, regions))]
    if not found:
        return lowered
    straight = [function.name for function, names in found if any(names.values())]
    code = _disassembled(cubin(lowered.text)) if straight else {}
    problems = list(lowered.problems)
    for function, names in found:
        moved = _sorted(code[function.name], names)[0] if function.name in code else set[str]()
        kernel = (source.kernels if source else {}).get(function.name, function.name)
        for name in sorted(moved | {name for name, count in names.items() if not count}):
            where = next((one.where for one in lowered.meta.regions if one.name == name and one.where), None)
            problems.append(_problem(kernel, name, where))
    about = replace(lowered.meta, problems=tuple(problems))
    text = metadata_patch.with_meta(lowered.text, about)
    return replace(lowered, text=text, meta=about, problems=about.problems)


def in_binaries(
    cubins: Iterable[bytes], places: Mapping[str, str], kernels: Callable[[str], Iterable[str]]
) -> tuple[Problem, ...]:
    """The problems `empty` of code that nvcc built.

    Args:
        cubins: the kernels, perhaps for several architectures: a region is empty if it is so in all.
        places: region -> file and line.
        kernels: returns the names of the kernels that a symbol may be of.
    """
    empty, busy = set[tuple[str, str]](), set[tuple[str, str]]()
    for function in (one for cubin in cubins for one in _disassembled(cubin).values()):
        without, others = _sorted(function, places)
        for kernel in kernels(function.name):
            empty |= {(kernel, name) for name in without}
            busy |= {(kernel, name) for name in others}
    return tuple(_problem(kernel, name, places[name], "KSCOPE_PIN()") for kernel, name in sorted(empty - busy))


def _problem(kernel: str, name: str, where: str | None, pin: str = "pin()") -> Problem:
    text = (
        f"kernel {kernel}: region {format_name(name)}{f' ({where})' if where else ''} has no instruction between its "
        "clock readings: it has no work, or the compiler moved it elsewhere, as it does with arithmetic and with the "
        f"loads of a pipelined loop; {pin} keeps the computation of a value inside"
    )
    return Problem("empty", text, kernel=kernel, region=name)


def _marked(text: str) -> Iterator[cfg.Function]:
    return (one for one in cfg.functions(text) if one.kind == "entry" and any(one.marks))


def _arithmetic(function: cfg.Function, regions: set[str]) -> dict[str, int]:
    """The regions that contain nothing but arithmetic wherever they are: name -> the most statements in them."""
    found: dict[str, int] = {}
    other: set[str] = set()
    opened: tuple[str, int] | None = None  # the innermost region that began, and its statements so far
    for one in function.statements:
        mark = one.mark
        if mark is not None and mark.act == "enter":
            other.update([opened[0]] if opened else [])
            opened = mark.name, 0
        elif mark is not None and mark.act == "exit" and opened and mark.name == opened[0]:
            found[mark.name] = max(found.get(mark.name, 0), opened[1])
            opened = None
        elif mark is not None and mark.act in ("exit", "instant", "counter", "pin"):
            other.update({mark.name, *([opened[0]] if opened else [])})
            opened = None
        elif opened:
            statement = function.text[one.start : one.end]
            if one.sort in ("other", "access") and _PURE.match(statement) and not _READS_CLOCK.search(statement):
                opened = opened[0], opened[1] + (not statement.startswith(".reg"))
            else:
                other.add(opened[0])
                opened = None
    return {name: count for name, count in found.items() if name in regions - other}


def _sorted(function: disassembly.Function, names: Iterable[str]) -> tuple[set[str], set[str]]:
    """The regions with no instruction between their clock reads, wherever they are, and the others."""
    kinds = (layout.Kind.SPAN, layout.Kind.SPAN_VALUE)
    read = disassembly.sites(function, {layout.record_id(name, kind): name for name in names for kind in kinds})
    busy = set(read.unresolved)
    for site in read.sites:
        if not disassembly.is_empty(one.code for one in function.instructions if site.begin < one.at < site.end):
            busy.add(site.region)
    return {site.region for site in read.sites} - busy, busy


def _disassembled(cubin: bytes | None) -> dict[str, disassembly.Function]:
    """A cubin's functions by name; none without a cubin or a disassembler, and of a large one."""
    if cubin is None or len(cubin) > MAX_CUBIN:
        return {}
    with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
        path = Path(folder, "module.cubin")
        path.write_bytes(cubin)
        try:
            return {one.name: one for one in disassembly.functions(tools.disassembly(path))}
        except (MissingError, FormatError, OSError):
            return {}
