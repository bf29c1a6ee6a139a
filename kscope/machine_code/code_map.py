"""The instructions of sampled functions: their text, source lines and regions, from the loaded cubin."""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..capture.layout import Kind, record_id
from ..capture.model import ModuleMeta, RegionMeta, RowLayout
from ..capture.samples import NO_PLACE, CodeRegion, Place, SampledFunction
from ..errors import FormatError, MissingError
from ..marks.names import split
from ..util.parallel import map_ahead
from . import elf, tools
from .disassembly import Function, Site, functions, sites
from .instruction_regions import Stack, segments
from .open_regions import open_regions
from .source_lines import body, lines, live_registers, texts
from .work import region_work

_SPANS = (Kind.SPAN, Kind.SPAN_VALUE)


def marks_of(modules: Iterable[ModuleMeta]) -> tuple[list[RegionMeta], list[RowLayout]]:
    """The regions of some modules, and the layouts of the rows with three clocks that they write."""
    modules = tuple(modules)
    return [one for module in modules for one in module.regions], [one for module in modules for one in module.layouts]


def with_instructions(
    sampled: Sequence[SampledFunction], cubin: bytes, regions: Iterable[RegionMeta], layouts: Iterable[RowLayout] = ()
) -> list[SampledFunction]:
    """Functions of one cubin with their instructions; unchanged except for the reason if the code cannot be read.

    Args:
        sampled: the functions, by name.
        cubin: the module that was loaded.
        regions: its possible regions.
        layouts: of the rows with three clocks that it may write.
    """
    regions, rows = tuple(regions), tuple(layouts)
    try:
        text, counted = _disassembly(cubin, {one.name for one in sampled})
    except (MissingError, FormatError, OSError) as error:
        return [replace(one, why_unknown=str(error)) for one in sampled]
    code = {one.name: one for one in functions(text)}
    printed, placed, known = texts(text), lines(text), {split(one.name)[0]: one for one in regions}
    live = live_registers(counted)
    ids = {record_id(one.name, kind): split(one.name)[0] for one in regions for kind in _SPANS}
    return [
        _function(one, code[one.name], printed[one.name], placed[one.name], live.get(one.name, {}), ids, rows, known,
                  segments(cubin, one.name))
        if one.name in code
        else replace(one, why_unknown="its module has no function of this name")
        for one in sampled
    ]  # fmt: skip


def _disassembly(cubin: bytes, names: set[str]) -> tuple[str, str]:
    """The code with its source lines, and with its live registers: empty where the disassembler does not count them,
    as version 13 does not in code of version 12.
    """
    symbols = enumerate(elf.read(cubin).symbols())
    numbers = [number for number, one in symbols if one.function and one.name in names]
    with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
        path = Path(folder, "module.cubin")
        path.write_bytes(cubin)
        readers: tuple[Callable[[Path, Sequence[int]], str], ...] = (tools.with_lines, _counted)
        with_lines, with_registers = map_ahead(lambda read: read(path, numbers), readers)
        return with_lines, with_registers


def _counted(path: Path, numbers: Sequence[int]) -> str:
    try:
        return tools.with_live_registers(path, numbers)
    except FormatError:
        return ""


def _function(
    sampled: SampledFunction, code: Function, printed: Mapping[int, str], placed: Mapping[int, tuple[Place, ...]],
    live: Mapping[int, int], ids: Mapping[int, str], rows: tuple[RowLayout, ...], known: Mapping[str, RegionMeta],
    runs: Sequence[tuple[int, Stack | None]],
) -> SampledFunction:  # fmt: skip
    found = sites(code, ids, rows)
    at = tuple(sorted(printed))  # also the padding
    ranged = dict(zip((one.at for one in code.instructions), open_regions(code, found.sites), strict=True))
    names = tuple(dict.fromkeys(site.region for site in found.sites))
    opened = _by_segments(runs, ranged, names) if runs else ranged
    stacks = tuple(dict.fromkeys([(), *opened.values(), *ranged.values()]))
    chains = tuple(dict.fromkeys(placed[one] for one in at if one in placed))
    work = region_work(code, found)
    chain_number, stack_number = ({one: number for number, one in enumerate(row)} for row in (chains, stacks))
    return replace(
        sampled,
        at=at,
        text=tuple(printed[one] for one in at),
        live=tuple(live.get(one, 0) for one in at) if live else (),
        place=tuple(chain_number[placed[one]] if one in placed else NO_PLACE for one in at),
        places=chains,
        opened=tuple(stack_number[opened.get(one, ())] for one in at),
        stacks=tuple(tuple(names.index(name) for name in stack) for stack in stacks),
        regions=tuple(replace(_region(name, known[name], found.sites, placed), work=work.get(name)) for name in names),
        ranged=tuple(stack_number[ranged.get(one, ())] for one in at) if runs else (),
        unresolved=tuple(dict.fromkeys(found.unresolved)),
    )


def _by_segments(
    runs: Sequence[tuple[int, Stack | None]], ranged: Mapping[int, Stack], names: Collection[str]
) -> dict[int, Stack]:
    """The regions of each instruction by its text; none for kscope's own."""
    begins, base = [at for at, _ in runs], min(ranged, default=0)  # a module in memory has addresses
    found = {at: runs[max(0, bisect_right(begins, at - base) - 1)][1] or () for at in ranged}
    return {at: tuple(name for name in stack if name in names) for at, stack in found.items()}


def _region(name: str, meta: RegionMeta, found: Iterable[Site], placed: Mapping[int, tuple[Place, ...]]) -> CodeRegion:
    """The region with its source lines: of its `with` statement, else those between the lines of its clock reads; none
    of selected code.
    """
    if meta.origin != "source":  # its clock reads have the lines of their neighbors
        return CodeRegion(name)
    if (block := body(meta.where)) is not None:
        return CodeRegion(name, *block)
    searched = Path((meta.where or "").rpartition(":")[0]).name
    by_file = defaultdict[str, list[int]](list)
    for site in found:
        for one in (site.begin, site.end) if site.region == name else ():
            for file, line in placed.get(one, ()):
                if Path(file).name == searched:
                    by_file[file].append(line)
    if len(by_file) != 1:
        return CodeRegion(name)
    [(file, numbers)] = by_file.items()
    return CodeRegion(name, file, min(numbers), max(numbers))
