"""A summary as text that fits a terminal."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Sequence

from ..tracedata.info import Info, blocks_text
from ..util.text import counted
from .data import PointStats, RegionStats, SummaryData
from .groups import label
from .warp_stats import WarpStats

_OPTIONAL = ("last", "first", "idle", "min", "p90", "self", "p99", "max", "p50", "imbalance", "share", "mean", "wall")
"""Columns in the order in which a narrow terminal drops them."""
_NARROWEST = 40
_NAME = 44
"""Characters of a name before columns stay: inferred roles with a region have so many."""
_UNEVEN_FROM, _MOST_UNEVEN = 1.2, 3
"""Imbalances from the first on are reported below the table, at most so many."""
_SHORT = 0.01
"""Regions with a smaller share have no imbalance worth a line."""


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


CELLS: dict[str, Callable[[RegionStats], str]] = {
    "count": lambda row: f"{row.count:,}",
    "warp time": lambda row: time_text(row.warp_time_ns),
    "wall": lambda row: time_text(row.wall_ns),
    "share": lambda row: part_text(row.share),
    "self": lambda row: time_text(row.self_ns),
    "mean": lambda row: time_text(row.mean_ns),
    "p50": lambda row: time_text(row.p50_ns),
    "p90": lambda row: time_text(row.p90_ns),
    "p99": lambda row: time_text(row.p99_ns),
    "min": lambda row: time_text(row.min_ns),
    "max": lambda row: time_text(row.max_ns),
    "imbalance": lambda row: "-" if math.isnan(row.imbalance) else f"{row.imbalance:.2f}",
    "first": lambda row: time_text(row.first_ns),
    "last": lambda row: time_text(row.last_ns),
    "idle": lambda row: time_text(row.idle_ns),
}
"""Column -> its text."""


def caveats(caveat: str, width: int) -> list[str]:
    """The lines of Info.caveat."""
    return wrapped(caveat, width) if caveat else []


def terminal(width: int | None = None) -> int:
    """`width`, or this terminal's columns."""
    return max(_NARROWEST, width or shutil.get_terminal_size((120, 24)).columns)


def render(summary: SummaryData, width: int | None = None, top: int | None = None) -> str:
    """The whole summary: a table per kernel, points, notes and problems."""
    width = terminal(width)
    head = wrapped(summary.info.line, width) if summary.info else []
    lines: list[str] = []
    kernels = [row.kernel for row in summary.regions] + [row.kernel for row in summary.points]
    for kernel in dict.fromkeys(kernels):
        lines += ["", cut(kernel, width)] if lines else [cut(kernel, width)]
        rows = [row for row in summary.regions if row.kernel == kernel]
        if rows:
            lines += _regions(rows, summary.by, width, top)
            lines += _uneven(rows, summary.by, width)
            lines += [line for text in hints(rows) for line in wrapped(text, width, "  ")]
        lines += [cut(_point(row), width) for row in summary.points if row.kernel == kernel]
        lines += _warps([row for row in summary.warps if row.kernel == kernel], summary.info, width)
    empty = [problem.text for problem in summary.problems if problem.kind == "empty"]
    if not lines:
        head = []
        lines = empty or [
            "no records" + ": the filters matched nothing, or no region was reached" * bool(summary.warps)
        ]
    lines += ["", *(line for note in summary.notes for line in wrapped(note, width))] if summary.notes else []
    problems = [problem.text for problem in summary.problems if problem.kind != "empty"]
    lines += [line for text in problems for line in wrapped(f"! {text}", width)]
    return "\n".join([*head, *([""] if head else []), *lines])


def _regions(rows: list[RegionStats], by: Sequence[str], width: int, top: int | None) -> list[str]:
    shown = rows
    if top is not None and len(rows) > top:
        least = sorted(row.warp_time_ns for row in rows)[-top]
        shown = [row for row in rows if row.warp_time_ns >= least][:top]
    names = [f"{label(by, row.key)}: {row.region}" if by else row.region for row in shown]
    columns = {name: [show(row) for row in shown] for name, show in CELLS.items()}
    if not any(row.idle_ns for row in shown):
        del columns["idle"]
    if all(abs(row.self_ns - row.warp_time_ns) < 1e-6 * row.warp_time_ns + 1e-9 for row in shown):
        del columns["self"]  # nothing is inside of anything
    lines = grid("region", names, columns, width, _OPTIONAL)
    if len(shown) < len(rows):
        lines.append(f"  + {len(rows) - len(shown):,} more rows with less warp time")
    unknown = sum(row.unknown for row in rows)
    return lines + ([f"  + {counted(unknown, 'span')} of unknown duration"] if unknown else [])


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


def _uneven(rows: list[RegionStats], by: Sequence[str], width: int) -> list[str]:
    """The imbalances that cost the most time: not those of short regions, however uneven they are."""
    uneven = [row for row in rows if row.imbalance >= _UNEVEN_FROM and not row.share < _SHORT]
    uneven.sort(key=lambda row: (1 - row.imbalance) * row.warp_time_ns)
    named = [f"{label(by, row.key)}: {row.region}" if by else row.region for row in uneven[:_MOST_UNEVEN]]
    return [cut(f"  {name}: {row.worst}", width) for name, row in zip(named, uneven, strict=False)]


def hints(rows: Iterable[RegionStats]) -> list[str]:
    """What a reader of the regions' times must know, once per region."""
    return list(dict.fromkeys(f"{row.region}: {row.hint}" for row in rows if row.hint))


def _warps(rows: list[WarpStats], info: Info | None, width: int) -> list[str]:
    """A kernel's time, time in no region, and dropped records."""
    alive, idle = sum(row.alive_ns for row in rows), sum(row.idle_ns for row in rows)
    if not alive:
        return []
    quiet = max(rows, key=lambda row: row.longest_idle_ns)
    text = f"in no region: {idle / alive:.1%}, longest gap {time_text(quiet.longest_idle_ns)} ({quiet.longest_idle_in})"
    if len(rows) == 1:
        row = rows[0]
        least = "at least " if row.blocks < row.grid_blocks else ""  # the other blocks may run longer
        blocks = blocks_text(row.blocks, row.grid_blocks, info is not None and info.sampled)
        text = f"{counted(row.launches, 'launch')} of {least}{time_text(row.time_ns)}, {blocks}; {text}"
    lost = sum(row.dropped for row in rows)
    return wrapped(text + (f"; dropped: {lost:,}" if lost else ""), width, "  ")


def _point(row: PointStats) -> str:
    numbers = "" if math.isnan(row.mean) else f", {row.least:g} to {row.greatest:g}, mean {row.mean:.6g}"
    return f"  {row.name}: {counted(row.count, row.kind)}{numbers}"


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
