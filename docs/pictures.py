"""Draws what is computed on the pages: bit pictures, the output of commands, parts of files, and whole files.

    python docs/pictures.py            rewrites the text between the markers

A test compares the pages with its output, so they stay up to date. docs/screenshots.py makes the pictures of the
report and of Perfetto.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import tempfile
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest import mock

import numpy as np

import kscope
from kscope import cli
from kscope.capture import layout, wire
from kscope.util.struct_layout import Fields

HERE = Path(__file__).resolve().parent
TUTORIAL = HERE / "tutorial"
PAGES = (
    HERE / "commands.md", HERE / "design" / "protocol.md", HERE / "design" / "writing-a-frontend.md",
    TUTORIAL / "README.md", HERE / "outputs.md", HERE.parent / "README.md",
)  # fmt: skip
CAPTURE = HERE.parent / "tests" / "golden" / "attention.kscope"
COLUMNS = 110
_BLOCK = re.compile(r"(<!-- picture: (\w+) -->\n)(.*?)(<!-- end -->)", re.S)
_SENTENCE = re.compile(r"(<!-- sentence: (\w+) -->\n)(.*?)(<!-- end -->)", re.S)
_FILE = re.compile(r"(<!-- file: (\S+) -->\n)(.*?)(<!-- end -->)", re.S)
_PART = re.compile(r"(<!-- part: (\S+), (\d+) lines from `(.+?)` -->\n)(.*?)(<!-- end -->)", re.S)
_PLACE = (
    ("lane", 0, layout.LANE_BITS),
    ("warp", layout.WARP_SHIFT, layout.LOG2_SHIFT - layout.WARP_SHIFT),
    ("log2(records)", layout.LOG2_SHIFT, layout.FLAG_SHIFT - layout.LOG2_SHIFT),
    ("flags", layout.FLAG_SHIFT, layout.SMID_SHIFT - layout.FLAG_SHIFT),
    ("smid", layout.SMID_SHIFT, 32 - layout.SMID_SHIFT),
)
_WHO = (
    ("warp", 0, wire.EPOCH_SHIFT),
    ("session", wire.EPOCH_SHIFT, wire.SM_SHIFT - wire.EPOCH_SHIFT),
    ("smid", wire.SM_SHIFT, wire.SM_BITS),
    ("slot", wire.SLOT_SHIFT, wire.SLOT_BITS),
)
_HEAD_BLOCK = (
    ("0", 0, wire.LANE_SHIFT),
    ("lane", wire.LANE_SHIFT, wire.BLOCK_SHIFT - wire.LANE_SHIFT),
    ("block", wire.BLOCK_SHIFT, wire.BLOCK_BITS),
)
_START_TIME = (("time", 0, wire.LOG2_SHIFT), ("log2(records)", wire.LOG2_SHIFT, 32 - wire.LOG2_SHIFT))
_SEAL = (
    ("width", 0, wire.WIDTH_BITS),
    ("grid", wire.GRID_SHIFT, wire.TURNS_SHIFT - wire.GRID_SHIFT),
    ("turns", wire.TURNS_SHIFT, 32 - wire.TURNS_SHIFT),
)
_OPEN_ID = (("sequence", 0, 4), ("28-bit FNV-1a hash of the name", 4, 28))
_ID = (("kind", 0, 4), ("28-bit FNV-1a hash of the name", 4, 28))


def words(fields: Fields) -> str:
    """A structure as rows of four 32-bit words: offset in bytes, then the fields; 16 bytes a row."""
    cells: list[tuple[str, int]] = []
    ends = [*map(fields.offset, fields.names[1:]), fields.itemsize]
    for name, end in zip(fields.names, ends, strict=True):
        cells.append((name.replace("_end", ""), (end - fields.offset(name)) // 4))
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
        ("unit", f"{wire.UNIT}", "bytes; what claims and positions count"),
        ("line", f"{layout.LINE}", "bytes; headers of a capture begin at multiples of it"),
        ("header", f"{layout.HEADER_BYTES}", "bytes"),
        ("slots", f"{wire.SLOTS}", "entries of the launch table"),
        ("sizes", f"{wire.SIZES}", "words with sizes of slabs, behind the gate"),
        ("record", f"{layout.RECORD_BYTES}", "bytes"),
        ("records of a slab", f"2^{layout.MIN_LOG2_RECORDS}..2^{layout.MAX_LOG2_RECORDS}", ""),
        *((f"kind {kind.name}", str(int(kind)), "") for kind in layout.Kind),
        ("kind MORE", str(layout.MORE), "half of the next record's value"),
        ("has MORE", str(layout.HAS_MORE), "added to the kind of a record with such a row before it"),
        ("kind CLOCKS", str(wire.CLOCKS), "a row with three clocks, or with short ones"),
        ("extra", str(wire.EXTRA_ID), "id of an overflowed ring's last row, if it had rows of several records"),
        ("anchor", str(layout.ANCHOR_ID), "id of an anchor among the records"),
        ("last anchor", str(layout.LAST_ANCHOR_ID), "id of an overflowed ring's last row, if it had anchors"),
        ("flag globaltimer", str(layout.FLAG_GLOBALTIMER), "ticks are ns of globaltimer, else SM cycles"),
        ("flag stop", str(layout.FLAG_STOP), "the oldest records are kept, else the newest"),
        ("flag lanes", str(layout.FLAG_LANES), "every lane of the warp has its own slab"),
        ("flag any", str(layout.FLAG_ANY), "lanes of the warp record in turn: their slabs are one lane's"),
        ("flag anchors", str(layout.FLAG_ANCHORS), "anchors may be among the records"),
    ]
    return "\n".join(f"{name:20}{value:>12}   {text}".rstrip() for name, value, text in rows)


def printed(command: str, lines: int | None = None) -> str:
    """The output of a kscope command about the tutorial's captures: all of it, or the first lines."""
    words = [str(TUTORIAL / word) if word.endswith(".kscope") else word for word in shlex.split(command)[1:]]
    with redirect_stdout(io.StringIO()) as out, mock.patch.dict(os.environ, {"COLUMNS": str(COLUMNS)}):
        cli.main(words)
    shown = out.getvalue().rstrip().splitlines()
    return "\n".join(shown if lines is None or len(shown) <= lines else [*shown[:lines], "  ..."])


def gate() -> str:
    """A condition that the fixed kernel of the tutorial meets and the slow one does not: half way between them."""
    slow, fast = (kscope.load(TUTORIAL / f"{name}.kscope").summary().warps[0].time_ns for name in ("slow", "fast"))
    return f'kscope assert fast.kscope "dropped == 0" "attention.mean_time < {(slow + fast) / 2000:.0f}us"'


def origin() -> str:
    """Where the tutorial's captures come from."""
    device = kscope.load_capture(TUTORIAL / "slow.kscope").devices[0].name
    if device != "simulated":
        return f"The captures were recorded on an {device}, with [record.py](record.py)."
    return """\
**The two captures of this page are simulated.** [record.py](record.py) records them on a GPU. Until it has, the
simulator plays the kernel's schedule, with times of regions that were measured on an H200 ([model.py](model.py))."""


def slice_bytes(trace: kscope.Trace, **options: Any) -> float:
    """Bytes of a .pftrace that one more slice takes: of half of the records, what they add to the other half."""
    half = np.arange(len(trace)) % 2 == 0
    with tempfile.TemporaryDirectory() as folder:
        path, sizes = Path(folder) / "x.pftrace", list[int]()
        for mask in (half | True, half):
            trace.filter(where=mask).export(path, **options)
            sizes.append(path.stat().st_size)
    return (sizes[0] - sizes[1]) / int(np.count_nonzero(~half))


def sizes() -> str:
    """The measured cost of arguments of slices."""
    trace = kscope.load(TUTORIAL / "slow.kscope")
    plain = replace(trace, regions=tuple(replace(one, where=None) for one in trace.regions))
    lines, no_lines, no_args = slice_bytes(trace), slice_bytes(plain), slice_bytes(plain, args=False)
    return f"""\
`args=False` (`--no-args`) omits all but the value. A slice of a .pftrace takes {lines:.0f} bytes, {no_lines:.0f} where
regions have no source lines, and {no_args:.0f} without arguments (measured on the tutorial's `slow.kscope`)."""


@cache
def sentences() -> dict[str, str]:
    """Every computed sentence by its name in the page."""
    return {"tutorial_origin": origin(), "slice_bytes": sizes()}


@cache
def pictures() -> dict[str, str]:
    """Every picture by its name in the page; a command line is drawn as one to type."""
    return {
        "record": words(layout.RECORD),
        "id": bits(_ID),
        "more": words(layout.HALF),
        "row": words(wire.ROW),
        "short_row": words(wire.SHORT_ROW),
        "header": words(layout.HEADER),
        "place": bits(_PLACE),
        "head": words(wire.HEAD),
        "open": words(wire.OPEN),
        "open_id": bits(_OPEN_ID),
        "who": bits(_WHO),
        "block": bits(_HEAD_BLOCK),
        "start_time": bits(_START_TIME),
        "seal": bits(_SEAL),
        "launch": words(wire.LAUNCH),
        "gate": words(wire.GATE),
        "stripe": words(wire.STRIPE),
        "constants": constants(),
        "summary": kscope.load(CAPTURE).summary().text(COLUMNS),
        "commands": cli.parser().epilog or "",
        "tutorial_summary": printed("kscope summary slow.kscope"),
        "tutorial_occupancy": printed("kscope occupancy slow.kscope --launch 0", 8),
        "tutorial_blocks": printed("kscope summary slow.kscope --launch 0 --region softmax --by block --top 4", 7),
        "tutorial_compare": printed("kscope compare slow.kscope fast.kscope"),
        "tutorial_gate": gate(),
    }


def part(lines: int, first: str, text: str) -> str:
    """So many lines from the one that begins with `first`, without their common indentation."""
    every = text.splitlines()
    start = next(at for at, line in enumerate(every) if line.strip().startswith(first))
    return dedent("\n".join(every[start : start + lines]))


def drawn(page: str) -> str:
    """The page with every picture and file as it is now. Raises KeyError or OSError for a marker that names none."""
    found, root = pictures(), HERE.parent
    page = _FILE.sub(lambda block: f"{block[1]}```python\n{(root / block[2]).read_text()}```\n{block[4]}", page)
    page = _PART.sub(
        lambda block: (
            f"{block[1]}```python\n{part(int(block[3]), block[4], (root / block[2]).read_text())}\n```\n{block[6]}"
        ),
        page,
    )
    page = _SENTENCE.sub(lambda block: f"{block[1]}\n{sentences()[block[2]]}\n\n{block[4]}", page)

    def fenced(block: re.Match[str]) -> str:
        text = found[block[2]]
        return f"{block[1]}```{'bash' if text.startswith('kscope ') else 'text'}\n{text}\n```\n{block[4]}"

    return _BLOCK.sub(fenced, page)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(drawn(page.read_text()))
