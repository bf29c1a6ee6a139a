"""Generates parts of the pages: the bit pictures of the protocol, the summary in the README, and whole files.

    python docs/pictures.py            rewrites the text between the markers

A test compares the pages with its output, so they stay up to date.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import kscope
from kscope.capture import layout

HERE = Path(__file__).resolve().parent
PAGES = (HERE / "protocol.md", HERE / "writing-a-frontend.md", HERE.parent / "README.md")
CAPTURE = HERE.parent / "tests" / "golden" / "attention.kscope"
COLUMNS = 110
_BLOCK = re.compile(r"(<!-- picture: (\w+) -->\n)(.*?)(<!-- end -->)", re.S)
_FILE = re.compile(r"(<!-- file: (\S+) -->\n)(.*?)(<!-- end -->)", re.S)
_PLACE = (
    ("lane", 0, layout.LANE_BITS),
    ("warp", layout.WARP_SHIFT, layout.LOG2_SHIFT - layout.WARP_SHIFT),
    ("log2(records)", layout.LOG2_SHIFT, layout.FLAG_SHIFT - layout.LOG2_SHIFT),
    ("flags", layout.FLAG_SHIFT, layout.SMID_SHIFT - layout.FLAG_SHIFT),
    ("smid", layout.SMID_SHIFT, 32 - layout.SMID_SHIFT),
)
_ID = (("kind", 0, 4), ("28-bit FNV-1a hash of the name", 4, 28))


def words(dtype: np.dtype[np.void]) -> str:
    """A structure as rows of four 32-bit words: offset in bytes, then the fields; 16 bytes a row."""
    cells: list[tuple[str, int]] = []
    for name in dtype.names or ():
        field = dtype.fields[name][0]  # type: ignore[index]  # a structured dtype has fields
        cells.append((name.replace("_end", ""), field.itemsize // 4))
    rows, row, at = [], [], 0
    line = "+" + "-" * 79 + "+"
    for name, size in cells:
        while size:
            take = min(size, 4 - at % 4)
            row.append((name, take))
            at, size = at + take, size - take
            if at % 4 == 0:
                rows.append(row)
                row = []
    merged = _merge(rows)
    text = [line]
    for offset, full in merged:
        text += ["|" + "|".join(f" {name} ".center(20 * take - 1) for name, take in full) + f"|  {offset}", line]
    return "\n".join(text)


def _merge(rows: list[list[tuple[str, int]]]) -> list[tuple[str, list[tuple[str, int]]]]:
    """Rows that only continue one array, drawn once: `96..127`."""
    merged: list[tuple[str, list[tuple[str, int]]]] = []
    for number, row in enumerate(rows):
        if merged and len(row) == 1 and merged[-1][1] == row:
            merged[-1] = (f"{merged[-1][0].split('..')[0]}..{number * 16 + 15}", row)
        else:
            merged.append((str(number * 16), row))
    return merged


def bits(parts: tuple[tuple[str, int, int], ...]) -> str:
    """One word as its bit fields, highest bit first."""
    cells = [(name, f"{low + size - 1}..{low}" if size > 1 else str(low)) for name, low, size in reversed(parts)]
    widths = [max(len(name), len(where)) + 2 for name, where in cells]
    line = "+" + "+".join("-" * width for width in widths) + "+"
    names = "|" + "|".join(name.center(width) for (name, _), width in zip(cells, widths, strict=True)) + "|"
    where = " " + " ".join(where.center(width) for (_, where), width in zip(cells, widths, strict=True))
    return "\n".join((where.rstrip(), line, names, line))


def constants() -> str:
    """The numbers that a reader in another language needs."""
    rows = [
        ("header word", f"0x{layout.HEADER_WORD:08X}", f"version {layout.MAJOR}.{layout.MINOR}"),
        ("done word", f"0x{layout.DONE_WORD:08X}", "xor the count, xor the end clock's low word"),
        ("unit", f"{layout.UNIT}", "bytes; what claims and positions count"),
        ("header", f"{layout.HEADER_BYTES}", "bytes"),
        ("record", f"{layout.RECORD_BYTES}", "bytes"),
        ("records of a slab", f"2^{layout.MIN_LOG2_RECORDS}..2^{layout.MAX_LOG2_RECORDS}", ""),
        *((f"kind {kind.name}", str(int(kind)), "") for kind in layout.Kind),
        ("flag globaltimer", str(layout.FLAG_GLOBALTIMER), "ticks are ns of globaltimer, else SM cycles"),
        ("flag stop", str(layout.FLAG_STOP), "the oldest records are kept, else the newest"),
        ("flag lanes", str(layout.FLAG_LANES), "every lane of the warp has its own slab"),
        ("flag any", str(layout.FLAG_ANY), "lanes of the warp record in turn: their slabs are one lane's"),
    ]
    return "\n".join(f"{name:20}{value:>12}   {text}".rstrip() for name, value, text in rows)


def pictures() -> dict[str, str]:
    """Every picture by its name in the page."""
    return {
        "record": words(layout.RECORD),
        "id": bits(_ID),
        "header": words(layout.HEADER),
        "place": bits(_PLACE),
        "gate": words(layout.GATE),
        "stripe": words(layout.STRIPE),
        "constants": constants(),
        "summary": kscope.decode(kscope.load(CAPTURE)).summary().text(COLUMNS),
    }


def drawn(page: str) -> str:
    """The page with every picture and file as it is now. Raises KeyError or OSError for a marker that names none."""
    found = pictures()
    page = _FILE.sub(lambda block: f"{block[1]}```python\n{(HERE.parent / block[2]).read_text()}```\n{block[4]}", page)
    return _BLOCK.sub(lambda block: f"{block[1]}```text\n{found[block[2]]}\n```\n{block[4]}", page)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(drawn(page.read_text()))
