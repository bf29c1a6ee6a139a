"""Text for a terminal: times and shares with units, tables that fit, wrapped lines."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Sequence

_NARROWEST = 40
"""Columns: a narrower terminal wraps lines."""
_NAME = 44
"""Characters of a name before columns are dropped: inferred roles with a region have as many."""


def time_text(ns: float) -> str:
    """Nanoseconds with a unit and three or four digits: 5.05 ns, 123.4 us, 1.234 s; - for NaN."""
    if not math.isfinite(ns):
        return "-"
    for unit, scale in (("ns", 1.0), ("us", 1e3), ("ms", 1e6)):
        if abs(ns) < 1000 * scale * (1 - 5e-4):
            value = ns / scale
            return f"{value:.0f} {unit}" if value == int(value) and scale == 1.0 else f"{value:.4g} {unit}"
    return f"{ns / 1e9:.4g} s" if ns < 1e13 else f"{ns / 1e9:,.0f} s"


def part_text(part: float) -> str:
    """A share in percent; - for NaN."""
    return "-" if math.isnan(part) else f"{part:.1%}"


def terminal_width(width: int | None = None) -> int:
    """`width`, or this terminal's columns."""
    return max(_NARROWEST, width or shutil.get_terminal_size((120, 24)).columns)


def grid(
    head: str, names: Sequence[str], columns: dict[str, list[str]], width: int, optional: Iterable[str] = ()
) -> list[str]:
    """Lines of a table.

    Args:
        head: header of the name columns.
        names: left-aligned columns.
        columns: right-aligned columns.
        width: columns of the terminal.
        optional: columns to leave out, in order, if the table is too wide.
    """
    cells = {name: [name, *column] for name, column in columns.items()}
    widths = {name: max(map(len, column)) for name, column in cells.items()}
    longest = max(map(len, [head, *names]), default=0) + 2
    name_width = min(longest, max(_NAME, 2 * width // 5))
    dropped = (name for name in optional if name in widths)
    while name_width + sum(2 + size for size in widths.values()) > width and (name := next(dropped, None)):
        del widths[name]
    name_width = max(8, min(longest, width - sum(2 + size for size in widths.values())))
    lines = []
    for number, name in enumerate([head, *names]):
        text = "".join("  " + cells[column][number].rjust(size) for column, size in widths.items())
        lines.append(cut(cut("  " + name, name_width).ljust(name_width) + text, width).rstrip())
    return lines


def cut(text: str, width: int) -> str:
    """The text on one line of at most `width` characters; control characters are replaced."""
    text = "".join(char if char.isprintable() else " " for char in text)
    return text if len(text) <= width else text[: width - 1] + "…"


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Lines of at most `width` characters, broken between words if possible; lines after the first are indented."""
    lines, line = [], ""
    for word in cut(text, len(text)).split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = f"{indent}  {word}"
        else:
            line = f"{line} {word}" if line else indent + word
    return [*lines, line]


def paragraph(text: str, width: int) -> list[str]:
    """Wrapped text; no lines if it is empty."""
    return wrapped(text, width) if text else []
