"""Where the warps of a core dump were: per launch, how many at each source line, of which blocks, in which region."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from linecache import getline
from pathlib import Path

from ..capture.samples import Place
from ..machine_code import tools
from ..util.text import counted, number_ranges
from . import reading
from .places import Describe, Places, Spot, places
from .reading import Dump, Grid, Warp

_MOST_GROUPS, _MOST_RANGES, _MOST_CODE = 64, 8, 4


@dataclass(frozen=True)
class Elsewhere:
    """Threads of a group's warps at another line: how many of each warp, and their line."""

    threads: int
    where: str | None
    code: str


@dataclass(frozen=True)
class Group:
    """Warps of a launch at the same source line, or the same instruction where lines are unknown.

    Attributes:
        region: the innermost region that is open there; None without marks.
        where: file:line, None if it is unknown.
        called: lines of the calls that were inlined around it, from the inside.
        source: the line's text; empty if the file is not here.
        function: which has the instructions.
        code: the instructions, at most four: offset in the function and text.
        warps, blocks: numbers, as in 0-3,8; block numbers are linear.
        count: number of warps.
        block_count: number of their blocks.
        sms: numbers of their SMs.
        exception: reason of their failure; None if they did not fail.
        elsewhere: their threads at another line.
    """

    region: str | None
    where: str | None
    called: tuple[str, ...]
    source: str
    function: str
    code: tuple[str, ...]
    warps: str
    blocks: str
    count: int
    block_count: int
    sms: str
    exception: str | None
    elsewhere: tuple[Elsewhere, ...]


@dataclass(frozen=True)
class LaunchState:
    """A launch that had not finished.

    Attributes:
        kernel: its name.
        number: %gridid.
        device: its name and ordinal.
        blocks: of its grid.
        running: blocks with warps in the dump; the others had ended or not begun.
        warps: in the dump.
        groups: warps by place: those that failed first, then the smallest groups.
    """

    kernel: str
    number: int
    device: str
    blocks: int
    running: int
    warps: int
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Verdict:
    """The state of the warps in a dump.

    Attributes:
        file: the dump.
        device: names and ordinals.
        driver: its version; empty if it is unknown.
        launches: those that had not finished, in their order.
        problems: exceptions whose warp has disappeared, and unknown facts.
    """

    file: str
    device: str
    driver: str
    launches: tuple[LaunchState, ...]
    problems: tuple[str, ...]


def verdict(path: Path, describe: Describe = tools.modules_in) -> Verdict:
    """The verdict of a core dump.

    Args:
        path: the dump.
        describe: finds the metadata in the bytes of a module.

    Raises:
        FormatError: it is no core dump, damaged, or incomplete.
        OSError: it cannot be read.
    """
    dump = reading.read(path)
    entries = [(one.device, one.entry) for one in dump.grids]
    at = [(one.device, pc) for one in dump.warps for pc in (one.pc, *(pc for pc, _ in one.others))]
    faults = [(one.device, one.pc) for one in dump.faults if one.pc]
    found = places(dump, [*entries, *at, *faults], describe)
    grids = sorted(dump.grids, key=lambda one: (one.device, one.number))
    launches = tuple(_launch(dump, grid, found) for grid in grids)
    return Verdict(
        file=str(path),
        device=", ".join(dump.devices),
        driver=dump.driver,
        launches=launches,
        problems=(*_faults(dump, found), *found.problems, *_without_lines(launches, found)),
    )


def _launch(dump: Dump, grid: Grid, found: Places) -> LaunchState:
    mine = [one for one in dump.warps if (one.device, one.grid) == (grid.device, grid.number)]
    parts = defaultdict[object, list[Warp]](list)
    for one in mine:
        spot = found.spots[one.device, one.pc]
        others = tuple(sorted(_others(one, spot, found).items(), key=str))
        parts[_line(spot), spot.regions, one.exception, others].append(one)
    groups = sorted((_group(part, found) for part in parts.values()), key=_first)
    return LaunchState(
        kernel=found.spots[grid.device, grid.entry].function or f"the kernel at {grid.entry:#x}",
        number=grid.number,
        device=dump.devices[grid.device] if grid.device < len(dump.devices) else f"device {grid.device}",
        blocks=grid.blocks[0] * grid.blocks[1] * grid.blocks[2],
        running=len({one.block for one in mine}),
        warps=len(mine),
        groups=tuple(groups[:_MOST_GROUPS]),
    )


def _first(one: Group) -> tuple[object, ...]:
    return one.exception is None, one.count, one.where or "", one.code


def _line(spot: Spot) -> object:
    """The identity of an instruction's place: its lines, or itself."""
    return spot.function, spot.chain or spot.offset


def _others(warp: Warp, at: Spot, found: Places) -> Counter[tuple[str | None, str]]:
    """Lanes at other lines than most of the warp, by line and, without one, instruction."""
    lanes = Counter[tuple[str | None, str]]()
    for pc, count in warp.others:
        spot = found.spots[warp.device, pc]
        if _line(spot) != _line(at):
            lanes[_where(spot.chain), "" if spot.chain else _code(spot)] += count
    return lanes


def _group(part: Sequence[Warp], found: Places) -> Group:
    spots = [found.spots[one.device, one.pc] for one in part]
    spot, blocks = spots[0], sorted({one.block for one in part})
    code = dict.fromkeys(_code(one) for one in sorted(spots, key=lambda one: one.offset))
    others = _others(part[0], spot, found)
    return Group(
        region=spot.regions[-1] if spot.regions else None,
        where=_where(spot.chain),
        called=tuple(f"{file}:{line}" for file, line in spot.chain[1:]),
        source=getline(*spot.chain[0]).strip() if spot.chain else "",
        function=spot.function,
        code=tuple(code)[:_MOST_CODE],
        warps=number_ranges(sorted({one.number for one in part}), _MOST_RANGES),
        blocks=number_ranges(blocks, _MOST_RANGES),
        count=len(part),
        block_count=len(blocks),
        sms=number_ranges(sorted({one.sm for one in part}), _MOST_RANGES),
        exception=part[0].exception or None,
        elsewhere=tuple(Elsewhere(count, where, text) for (where, text), count in others.items()),
    )


def _where(chain: tuple[Place, ...]) -> str | None:
    return f"{chain[0][0]}:{chain[0][1]}" if chain else None


def _code(spot: Spot) -> str:
    return f"{spot.offset:#x} {spot.text}".strip()


def _faults(dump: Dump, found: Places) -> Iterator[str]:
    """Exceptions of SMs whose warps have disappeared."""
    there = {(one.device, one.sm) for one in dump.warps if one.exception}
    for one in dump.faults:
        if (one.device, one.sm) not in there:
            spot = found.spots.get((one.device, one.pc))
            at = "" if spot is None else f" at {_where(spot.chain) or _code(spot)} of {spot.function or 'no module'}"
            yield f"SM {one.sm}: {one.exception}{at}; its warp is gone"


def _without_lines(launches: Sequence[LaunchState], found: Places) -> Iterator[str]:
    names = {group.function for one in launches for group in one.groups if group.where is None and group.function}
    if names and not found.problems:
        few = ", ".join(sorted(names)[:_MOST_CODE])
        yield f"{counted(len(names), 'function')} without source lines: {few}; compile with -lineinfo"
