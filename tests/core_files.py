"""Core dumps of a GPU as files: written from rows, and recorded ones without memory and registers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kscope.core_dumps import tables
from kscope.core_dumps.tables import HEADER, SECTION, Sections, Table

STRTAB, EXTENDED = 3, 0xFFFF
CONTEXTS = Table(0x80000000 + 10, "ctxtbl", np.dtype([("id", "<u8")]))
MODULES = Table(0x80000000 + 16, "modtbl", np.dtype([("handle", "<u8")]))
KEPT = {one.kind for one in (tables.DEVICES, CONTEXTS, tables.SMS, tables.GRIDS, tables.BLOCKS, tables.WARPS,
                             tables.LANES, MODULES, tables.META)} | {tables.IMAGE}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A section: its name, kind, content, the part that it belongs to and the row there, bytes of a row."""

    name: str
    kind: int
    body: bytes = b""
    link: int = 0
    info: int = 0
    row: int = 0


def write(path: Path, parts: Sequence[Part], *, extended: bool = False) -> Path:
    """Write a dump of these parts; links count from 1, as section 0 is none. extended: with more than 65,000 sections'
    way to say how many there are."""
    names = b"\0" + b"".join(one.name.encode() + b"\0" for one in [*parts, Part(".shstrtab", STRTAB)])
    every = [Part("", 0), *parts, Part(".shstrtab", STRTAB, names)]
    rows, at, out = np.zeros(len(every), SECTION), HEADER.itemsize, bytearray(HEADER.itemsize)
    for number, one in enumerate(every):
        name = 0 if not number else names.index(b"\0" + one.name.encode() + b"\0") + 1
        rows[number] = (name, one.kind, 0, 0, at, len(one.body), one.link, one.info, 0, one.row)
        out += one.body
        at += len(one.body)
    count, last = len(every), len(every) - 1
    if extended:
        rows[0]["size"], rows[0]["link"], count, last = count, last, 0, EXTENDED
    head = np.zeros(1, HEADER)
    head[0] = (b"\x7fELF\x02", tables.CUDA_ABI, tables.CORE, tables.CUDA_MACHINE, at, SECTION.itemsize, count, last)
    out[: HEADER.itemsize] = head.tobytes()
    path.write_bytes(bytes(out) + rows.tobytes())
    return path


def rows(table: Table, *values: dict[str, Any], more: int = 0) -> bytes:
    """Rows of a table, with `more` bytes that a newer driver appends to each."""
    made = np.zeros(len(values), table.row)
    for row, fields in zip(made, values, strict=True):
        for name, value in fields.items():
            row[name] = value
    return b"".join(row.tobytes() + bytes(more) for row in made)


def part(name: str, table: Table, link: int, info: int, *values: dict[str, Any], more: int = 0) -> Part:
    """A table of a dump."""
    return Part(name, table.kind, rows(table, *values, more=more), link, info, table.row.itemsize + more)


def reduced(path: Path, to: Path, images: Iterable[int]) -> Path:
    """A recorded dump with what is read of it: no memory, no registers, and only these modules."""
    sections, kept = Sections(path), dict[int, int]()
    parts = list[Part]()
    for number in range(1, len(sections.all)):
        row = sections.all[number]
        strings = row["kind"] == STRTAB and sections.name(number) == ".strtab"
        image = row["kind"] == tables.IMAGE
        if not strings and (row["kind"] not in KEPT or (image and row["info"] not in images)):
            continue
        parts.append(Part(sections.name(number), int(row["kind"]), sections.body(number).tobytes(), int(row["link"]),
                          int(row["info"]), int(row["row"])))  # fmt: skip
        kept[number] = len(parts)
    return write(to, [replace(one, link=kept.get(one.link, 0)) for one in parts])


GRID = {"number": 7, "entry": 0, "blocks": (2, 3, 1), "threads": (64, 2, 1)}
LANE = {"lane": 0, "thread": (32, 1, 0)}


def one_warp(
    path: Path, image: bytes = b"", *, lane: dict[str, Any] = LANE, others: Sequence[dict[str, Any]] = (),
    warp: dict[str, Any] | None = None,
    sm: dict[str, Any] | None = None, more: int = 0, extended: bool = False, old: bool = False,
) -> Path:  # fmt: skip
    """A dump of one warp, of block (1, 2, 0), at the beginning of the first module.

    Args:
        path: the file to write.
        image: the module.
        lane, warp, sm: fields of its rows.
        others: rows of further lanes.
        more: bytes that a newer driver has in each row.
        extended: as write() has it.
        old: without what SMs report.
    """
    sms = tables.SMS if old else tables.FAULTS
    warp_row = {"valid": 1, "active": 1, **(warp or {})}
    return write(
        path,
        [
            Part(".strtab", STRTAB, b"\0a device\0"),
            part(".cudbg.devtbl", tables.DEVICES, 0, 0, {"name": 1, "ordinal": 0}, more=more),
            part(".cudbg.ctxtbl.dev0", CONTEXTS, 2, 0, {"id": 1}, more=more),
            part(".cudbg.modtbl.dev0.ctx0", MODULES, 3, 0, {"handle": 1}, more=more),
            Part(".cudbg.relfimg.dev0.ctx0", tables.IMAGE, image, 4, 0),
            part(".cudbg.gridtbl.dev0", tables.GRIDS, 2, 0, GRID, {**GRID, "number": 8}, more=more),
            part(".cudbg.smtbl.dev0", sms, 2, 0, {"number": 5, **(sm or {})}, more=more),
            part(".cudbg.ctatbl.dev0.sm0", tables.BLOCKS, 7, 0, {"grid": 7, "index": (1, 2, 0)}, more=more),
            part(".cudbg.wptbl.dev0.sm0.cta0", tables.WARPS, 8, 0, warp_row, more=more),
            part(".cudbg.lntbl.dev0.sm0.cta0.wp0", tables.LANES, 9, 0, lane, *others, more=more),
        ],
        extended=extended,
    )
