"""The cost of marking a kernel's sites before recording: records, and machine code."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from ...capture.layout import record_id
from ...capture.samples import SampledFunction
from ...errors import KscopeError
from ...instrument.selection.catalog import KernelSites, Site
from ...machine_code import code_map, moved_instructions, tools
from ...machine_code.disassembly import functions, sites
from ...util.grouping import grouped
from ..warp_regions import SPANS
from .perturbation import Perturbation, perturbation


@dataclass(frozen=True)
class Row:
    """The places of one region under the same loops, for the same group of warps.

    Attributes:
        region, where: its name and source lines.
        loops: the enclosing loops, outermost first.
        group: of warps, if they are specialized.
        places: each execution of a place makes one record per recording warp.
        instructions: of the machine between the clock reads of each place; () if unknown.
        branches: True if a branch is among them.
    """

    region: str
    where: str
    loops: tuple[str, ...]
    group: str
    places: int
    instructions: tuple[int, ...] = ()
    branches: bool = False

    @property
    def records(self) -> str:
        """``2 per launch``, ``1 per iteration of attn.py:43``, ``1 per iteration of attn.py:43 in attn.py:40``"""
        if not self.loops:
            return f"{self.places} per launch"
        return f"{self.places} per iteration of {' in '.join(_short(loop) for loop in reversed(self.loops))}"

    @property
    def code(self) -> str:
        """``37``, ``12 to 40``, ``120, which branch``, ``-``"""
        if not self.instructions:
            return "-"
        low, high = min(self.instructions), max(self.instructions)
        return (f"{low:,}" if low == high else f"{low:,} to {high:,}") + (", which branch" if self.branches else "")


@dataclass(frozen=True)
class Cost:
    """The cost of a kernel.

    Attributes:
        kernel: the listed kernel.
        rows: in order of the code.
        build: the build without marks compared with the one with marks; None if unknown.
        unknown: reason why it is unknown.
        misplaced: a sentence for each region of the source that is empty or whose instructions are elsewhere.
    """

    kernel: KernelSites
    rows: tuple[Row, ...]
    build: Perturbation | None
    unknown: str = ""
    misplaced: tuple[str, ...] = ()


def cost(kernel: KernelSites) -> Cost:
    """The sites of a kernel, and how marking all of them changes its code."""
    build, code, unknown = None, dict[str, tuple[tuple[int, ...], bool]](), ""
    misplaced: tuple[str, ...] = ()
    if kernel.build is not None:
        with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
            try:
                paths = kernel.build(Path(folder))
                if paths is None:
                    unknown = "the assembler refused it"
                elif kernel.sites:
                    build, code = perturbation(*paths, kernel=kernel.symbol or kernel.kernel), _code(kernel, paths[1])
                misplaced = () if paths is None else _misplaced(kernel, *(one.read_bytes() for one in paths))
            except KscopeError as error:  # no disassembler: the sites are known all the same
                unknown = str(error)
    groups = grouped(((site.region, site.loops, site.group), site) for site in kernel.sites)
    rows = tuple(
        Row(region, _all(found), loops, group, len(found), *code.get(region, ((), False)))
        for (region, loops, group), found in groups.items()
    )
    return Cost(kernel, rows, build, unknown if kernel.sites else "", misplaced)


def _misplaced(kernel: KernelSites, plain: bytes, marked: bytes) -> tuple[str, ...]:
    """Regions of the source as the machine code alone shows them; selected ones follow the code."""
    modules = tools.modules_in(marked)
    regions = [one for module in modules for one in module.regions if one.origin == "source"]
    layouts = [one for module in modules for one in module.layouts]
    if not regions:
        return ()
    function = SampledFunction(kernel.symbol or kernel.kernel)
    [without] = code_map.with_instructions([function], plain, ())
    [found] = code_map.with_instructions([function], marked, regions, layouts)
    return tuple(moved_instructions.findings(moved_instructions.placed_regions(found, without)))


def _code(kernel: KernelSites, path: Path) -> dict[str, tuple[tuple[int, ...], bool]]:
    """Instructions of each region's places, and whether one is a branch."""
    ids = {record_id(site.region, kind): site.region for site in kernel.sites for kind in SPANS}
    found: dict[str, tuple[tuple[int, ...], bool]] = {}
    for function in functions(tools.disassembly(path)):
        if function.name == (kernel.symbol or kernel.kernel):
            for site in sites(function, ids, tools.layouts(path)).sites:
                counts, branches = found.get(site.region, ((), False))
                found[site.region] = (*counts, site.between), branches or not site.straight
    return found


def _all(group: list[Site]) -> str:
    return ", ".join(dict.fromkeys(site.where for site in group))


def _short(where: str) -> str:
    return where.replace("\\", "/").rpartition("/")[2]
