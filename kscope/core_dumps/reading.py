"""Reads each warp of a core dump: its kernel, block, number, SM and address of its next instruction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import FormatError
from . import tables
from .tables import Rows, Sections

_WARP = 32
_EXCEPTIONS = {
    1: "illegal address", 2: "stack overflow", 3: "stack overflow", 4: "illegal instruction or trap",
    5: "address out of range", 6: "misaligned address", 7: "invalid address space", 8: "invalid program counter",
    9: "stack overflow", 10: "illegal address", 11: "misaligned address", 12: "failed assertion",
    13: "error of a system call", 14: "illegal address", 15: "atomic on memory that cannot move",
    16: "invalid atomic", 17: "address outside of the cluster", 18: "block of the cluster that has ended",
    19: "overwritten stack", 20: "invalid access of tensor memory", 21: "tensor memory that was not freed",
}  # fmt: skip
"""Exceptions of the hardware, by CUDBGException_t."""


@dataclass(frozen=True)
class Grid:
    """A launch.

    Attributes:
        number: %gridid.
        device: index of its device in the dump.
        entry: address of the kernel.
        blocks: of the launch, x, y, z.
        threads: of a block, x, y, z.
    """

    number: int
    device: int
    entry: int
    blocks: tuple[int, int, int]
    threads: tuple[int, int, int]


@dataclass(frozen=True)
class Warp:
    """A warp that had not finished.

    Attributes:
        device: index of its device in the dump.
        sm: its SM.
        grid: the launch's %gridid.
        block: its block, counted x first.
        number: its number in the block.
        pc: address of its active lanes; of its failure, if it failed and the hardware knows.
        others: addresses of other lanes, and their numbers.
        exception: reason of its failure; empty if it did not fail.
    """

    device: int
    sm: int
    grid: int
    block: int
    number: int
    pc: int
    others: tuple[tuple[int, int], ...] = ()
    exception: str = ""


@dataclass(frozen=True)
class Fault:
    """An exception of an SM, of a warp that may have disappeared: its reason and address, 0 if unknown."""

    device: int
    sm: int
    exception: str
    pc: int


@dataclass(frozen=True)
class Image:
    """A module in the GPU's memory, as its cubin with addresses. `section` is its section in the dump."""

    device: int
    section: int


@dataclass(frozen=True)
class Dump:
    """A core dump.

    Attributes:
        sections: its file.
        devices: names and ordinals, such as NVIDIA H200 0.
        driver: its version; empty if it is unknown.
        grids: launches that had not finished.
        warps: those that had not finished.
        faults: exceptions.
        images: the modules.
    """

    sections: Sections
    devices: tuple[str, ...]
    driver: str
    grids: tuple[Grid, ...]
    warps: tuple[Warp, ...]
    faults: tuple[Fault, ...]
    images: tuple[Image, ...]

    def image(self, one: Image) -> bytes:
        """The cubin of a module."""
        return self.sections.body(one.section).tobytes()


def read(path: Path) -> Dump:
    """Read a core dump.

    Raises:
        FormatError: it is no core dump, damaged, or incomplete.
        OSError: it cannot be read.
    """
    sections = Sections(path)
    devices = [row for one in sections.of(tables.DEVICES.kind) for row in sections.table(tables.DEVICES, one)]
    grids = tuple(_grids(sections))
    return Dump(
        sections,
        tuple(f"{sections.string(int(row['name']))} {int(row['ordinal'])}" for row in devices),
        _driver(sections),
        grids,
        tuple(_warps(sections, {(one.device, one.number): one for one in grids})),
        tuple(_faults(sections)),
        tuple(_images(sections)),
    )


def _driver(sections: Sections) -> str:
    for one in sections.of(tables.META.kind):
        if sections.has(tables.META, one):
            for row in sections.table(tables.META, one):
                return ".".join(map(str, row["driver"].tolist())) if row["driver"][0] else ""
    return ""


def _grids(sections: Sections) -> Iterator[Grid]:
    for one in sections.of(tables.GRIDS.kind):
        for row in sections.table(tables.GRIDS, one):
            blocks, threads = ((int(x), int(y), int(z)) for x, y, z in (row["blocks"], row["threads"]))
            yield Grid(int(row["number"]), sections.info(one), int(row["entry"]), blocks, threads)


def _faults(sections: Sections) -> Iterator[Fault]:
    for one in sections.of(tables.FAULTS.kind):
        if sections.has(tables.FAULTS, one):
            for row in sections.table(tables.FAULTS, one):
                if row["exception"]:
                    pc = int(row["pc"]) if row["known"] else 0
                    yield Fault(sections.info(one), int(row["number"]), exception(int(row["exception"])), pc)


def _images(sections: Sections) -> Iterator[Image]:
    """The modules: images link to the table of modules, which links to the contexts, and these name their device."""
    for one in sections.of(tables.IMAGE):
        yield Image(sections.info(sections.link(sections.link(one))), one)


def _warps(sections: Sections, grids: dict[tuple[int, int], Grid]) -> Iterator[Warp]:
    blocks = {one: sections.table(tables.BLOCKS, one) for one in sections.of(tables.BLOCKS.kind)}
    sms = {one: sections.table(tables.SMS, one) for one in sections.of(tables.SMS.kind)}
    warps = {one: sections.table(tables.WARPS, one) for one in sections.of(tables.WARPS.kind)}
    for one in sections.of(tables.LANES.kind):
        of_warp = sections.link(one)
        of_block = sections.link(of_warp)
        of_sm = sections.link(of_block)
        row, lanes = _row(sections, warps, of_warp, one), sections.table(tables.LANES, one)
        block = _row(sections, blocks, of_block, of_warp)
        device = sections.info(of_sm)
        grid = grids.get((device, int(block["grid"])))
        if grid is None or not len(lanes):
            continue
        sm = int(_row(sections, sms, of_sm, of_block)["number"])
        yield _warp(row, lanes, device, sm, grid, _linear(block["index"], grid.blocks))


def _row(sections: Sections, found: dict[int, Rows], table: int, member: int) -> np.void:
    """The row of a table that a section belongs to. Raises FormatError if there is none."""
    number = sections.info(member)
    if table not in found or number >= len(found[table]):
        raise FormatError(f"{sections.path}: damaged: section {member:,} belongs to no row of {table:,}")
    row: np.void = found[table][number]
    return row


def _warp(row: np.void, lanes: Rows, device: int, sm: int, grid: Grid, block: int) -> Warp:
    bit = np.uint32(1) << (lanes["lane"] % _WARP)
    valid, active = (lanes[(bit & row[mask]) != 0] for mask in ("valid", "active"))
    failed = valid[valid["exception"] != 0]
    at = int(next(some for some in (failed, active, valid, lanes) if len(some))["pc"][0])
    why = exception(int(failed["exception"][0])) if len(failed) else ""
    others = valid[valid["pc"] != at]
    addresses, counts = np.unique(others["pc"], return_counts=True)
    number = _linear(lanes["thread"][0], grid.threads) // _WARP
    pc = int(row["pc"]) if why and row["known"] else at
    elsewhere = tuple(zip(addresses.tolist(), counts.tolist(), strict=True))
    return Warp(device, sm, grid.number, block, number, pc, elsewhere, why)


def _linear(index: object, of: tuple[int, int, int]) -> int:
    x, y, z = (int(one) for one in index)  # type: ignore[attr-defined]
    return x + of[0] * (y + of[1] * z)


def exception(number: int) -> str:
    """A description of a hardware exception."""
    return _EXCEPTIONS.get(number, f"exception {number}")
