"""The sections of a core dump: an ELF of tables, whose rows get longer with newer drivers. Kinds, names and fields are
those of NVIDIA's public header cudacoredump.h that kscope reads.
"""

from __future__ import annotations

import mmap
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from ..machine_code.elf import is_elf

Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.void]

HEADER = np.dtype(
    {
        "names": ["magic", "abi", "kind", "machine", "sections_at", "row", "count", "names"],
        "formats": ["S5", "u1", "<u2", "<u2", "<u8", "<u2", "<u2", "<u2"],
        "offsets": [0, 7, 16, 18, 40, 58, 60, 62],
        "itemsize": 64,
    }
)
SECTION = np.dtype(
    [
        ("name", "<u4"), ("kind", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("at", "<u8"), ("size", "<u8"),
        ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("row", "<u8"),
    ]
)  # fmt: skip
CORE, CUDA_ABI, CUDA_MACHINE = 4, 0x33, 190
_STRTAB, _STRINGS = 3, ".strtab"
_MORE = 0xFFFF
"""Index of the section of names if the first section has it: a dump of a busy GPU may have a million sections."""


@dataclass(frozen=True)
class Table:
    """A kind of section with rows: its number, its name in errors, and the fields of a row that are read."""

    kind: int
    name: str
    row: np.dtype[np.void]


def _table(kind: int, name: str, size: int, /, **fields: tuple[str, int]) -> Table:
    """A table with fields as type and offset; `size`: the shortest row, of the first driver that wrote all of them."""
    formats, offsets = [one for one, _ in fields.values()], [at for _, at in fields.values()]
    row = np.dtype({"names": [*fields], "formats": formats, "offsets": offsets, "itemsize": size})
    return Table(0x80000000 + kind, name, row)


IMAGE = 0x80000000 + 7
"""A module in the GPU's memory: a cubin with addresses."""
DEVICES = _table(9, "devtbl", 40, name=("<u8", 0), ordinal=("<u4", 24), sms=("<u4", 36))
SMS = _table(11, "smtbl", 4, number=("<u4", 0))
FAULTS = _table(11, "smtbl", 24, number=("<u4", 0), exception=("<u4", 8), known=("<u4", 12), pc=("<u8", 16))
GRIDS = _table(
    12, "gridtbl", 96, number=("<u8", 0), entry=("<u8", 24), module=("<u8", 32), status=("<u4", 64),
    blocks=("(3,)<u4", 72), threads=("(3,)<u4", 84),
)  # fmt: skip
BLOCKS = _table(13, "ctatbl", 20, grid=("<u8", 0), index=("(3,)<u4", 8))
WARPS = _table(14, "wptbl", 28, pc=("<u8", 0), valid=("<u4", 12), active=("<u4", 16), known=("<u4", 24))
LANES = _table(15, "lntbl", 36, pc=("<u8", 0), lane=("<u4", 16), thread=("(3,)<u4", 20), exception=("<u4", 32))
META = _table(22, "meta", 16, driver=("(2,)<u4", 8))


class Sections:
    """The sections of a dump. Its file is mapped, and only the tables are read: memory that was dumped may be large.

    Args:
        path: the file.

    Raises:
        FormatError: it is not a core dump of a GPU, or damaged.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._data = path, _mapped(path)
        header = self._rows(0, HEADER.itemsize, HEADER, HEADER.itemsize, "header")[0] if len(self._data) >= 64 else None
        kinds = () if header is None else (is_elf(header["magic"], wide=True), header["abi"], header["kind"])
        if header is None or kinds != (True, CUDA_ABI, CORE):
            raise FormatError(f"{path}: not a core dump of a GPU; expected a file that kscope run --core has announced")
        if header["machine"] != CUDA_MACHINE or header["row"] != SECTION.itemsize:
            raise FormatError(f"{path}: damaged: its header is not that of NVIDIA's core dumps")
        at, count, names = int(header["sections_at"]), int(header["count"]), int(header["names"])
        if not at:
            raise FormatError(f"{path}: not completely written: the driver has ended too early, or is still writing")
        first = self._rows(at, SECTION.itemsize, SECTION, SECTION.itemsize, "list of sections")[0]
        count, names = count or int(first["size"]), int(first["link"]) if names == _MORE else names
        self.all = self._rows(at, count * SECTION.itemsize, SECTION, SECTION.itemsize, "list of sections")
        if names >= count:
            raise FormatError(f"{path}: damaged: section {names:,} would have the names of {count:,} sections")
        self._names = self.body(names)
        self._strings = next((self.body(one) for one in self.of(_STRTAB) if self.name(one) == _STRINGS), self._names)

    def of(self, kind: int) -> list[int]:
        """Numbers of the sections of a kind, in the order of the file."""
        found: list[int] = np.flatnonzero(self.all["kind"] == kind).tolist()
        return found

    def info(self, number: int) -> int:
        """The section's owner: a row of the table to which it belongs."""
        return int(self.all["info"][number])

    def link(self, number: int) -> int:
        """The number of the section with that table."""
        found = int(self.all["link"][number])
        if found >= len(self.all):
            raise FormatError(
                f"{self.path}: damaged: section {number:,} belongs to {found:,} of {len(self.all):,} sections"
            )
        return found

    def name(self, number: int) -> str:
        """The section's name."""
        return _text(self._names, int(self.all["name"][number]))

    def string(self, at: int) -> str:
        """A text that a row names."""
        return _text(self._strings, at)

    def body(self, number: int) -> Bytes:
        """The section's content."""
        row = self.all[number]
        return self._cut(int(row["at"]), int(row["size"]), f"section {number:,}")

    def table(self, table: Table, number: int) -> Rows:
        """The rows of a section.

        Raises:
            FormatError: they are shorter than those of the first driver with all fields, or not whole.
        """
        row = self.all[number]
        return self._rows(int(row["at"]), int(row["size"]), table.row, self._step(number), f"table {table.name}")

    def has(self, table: Table, number: int) -> bool:
        """True if the rows of a section have all of these fields."""
        return self._step(number) >= table.row.itemsize

    def _step(self, number: int) -> int:
        """Bytes of a row; a section without rows is one."""
        return int(self.all["row"][number] or self.all["size"][number])

    def _rows(self, at: int, size: int, row: np.dtype[Any], step: int, what: str) -> Rows:
        if not size:
            return np.zeros(0, row)
        if step < row.itemsize or size % step:
            raise FormatError(
                f"{self.path}: damaged: {size:,} bytes of {what} in rows of {step}, not {row.itemsize} or more"
            )
        body = self._cut(at, size, what).reshape(-1, step)
        return np.ascontiguousarray(body[:, : row.itemsize]).view(row)[:, 0]

    def _cut(self, at: int, size: int, what: str) -> Bytes:
        if at > len(self._data) or size > len(self._data) - at:
            whole = len(self._data)
            raise FormatError(f"{self.path}: cut short: {what} would be {size:,} bytes at {at:,} of {whole:,}")
        return self._data[at : at + size]


def is_complete(path: Path) -> bool:
    """True if the driver has written all of a dump: its list of sections is last."""
    try:
        Sections(path)
    except (FormatError, OSError):
        return False
    return True


def is_core_dump(path: Path) -> bool:
    """True if the file is a core dump of a GPU, as far as it is written."""
    with path.open("rb") as file:
        head = file.read(8)
    return is_elf(head, wide=True) and head[7:8] == bytes([CUDA_ABI])


def _mapped(path: Path) -> Bytes:
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode) or not info.st_size:
            raise FormatError(f"{path}: not a core dump of a GPU; expected a file with content")
        return np.frombuffer(mmap.mmap(file, info.st_size, prot=mmap.PROT_READ), np.uint8)
    finally:
        os.close(file)


def _text(strings: Bytes, at: int) -> str:
    end = at + int(np.argmax(strings[at : at + 4096] == 0)) if at < len(strings) else at
    return strings[at:end].tobytes().decode("utf-8", "replace")
