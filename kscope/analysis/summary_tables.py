"""A summary, and its rows as dicts, CSV and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..util.packages import import_pandas
from .display import Shown
from .summary_data import RegionStats, SummaryData
from .summary_text import CELLS, hints, render
from .warp_stats import WarpStats

_ESCAPES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", **{mark: f"\\{mark}" for mark in "\\|`*_[]"}}


@dataclass(frozen=True, repr=False)
class Summary(Shown, SummaryData):
    """A trace's summary, as dicts, CSV, Markdown, DataFrame and text; ``str()`` is the table for a terminal.

    Attributes:
        regions: by kernel and group, longest total first.
        points: instants and counters.
        problems: the trace's problems.
        notes: remarks, in words.
        warps: one row per kernel and group.
        by: the keys that rows are grouped by.
        tick_ns: the timer's step, in ns.
        info: how and where the trace was recorded.
    """

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dict per region, with the fields of RegionStats; one column per part of the key."""
        return [_flat(row, self.by) for row in self.regions]

    def to_dict(self, top: int | None = None) -> dict[str, Any]:
        """The summary as plain dicts and lists, ready for JSON; `left_out` has the number of regions beyond `top`.

        Args:
            top: only the `top` regions with the longest totals.
        """
        regions = self._longest(top)
        shown = {(row.kernel, row.key) for row in regions}
        cut = len(regions) < len(self.regions)
        warps = [row for row in self.warps if not cut or (row.kernel, row.key) in shown]
        return {
            "recorded": None if self.info is None else self.info.to_dict(),
            "by": list(self.by),
            "tick_ns": self.tick_ns,
            "regions": [_flat(row, self.by) for row in regions],
            "left_out": {"regions": len(self.regions) - len(regions)} if cut else {},
            "warps": [_flat(row, self.by) for row in warps],
            "points": [asdict(row) for row in self.points],
            "problems": [asdict(row) for row in self.problems],
            "notes": list(self.notes),
        }

    def csv(self, top: int | None = None) -> str:
        """Regions (the `top` longest) as comma-separated values with a header line; NaN is empty. The last columns are
        the clock, and the number of recorded blocks of the grids. '' without regions.
        """
        about = self.info
        same = {} if about is None else {"clock": about.clock, "blocks": about.blocks, "grid_blocks": about.grid_blocks}
        found = [{**_flat(row, self.by), **same} for row in self._longest(top)]
        if not found:
            return ""
        out = io.StringIO()
        writer = csv.DictWriter(out, list(found[0]), lineterminator="\n")
        writer.writeheader()
        for row in found:
            writer.writerow({name: "" if value != value else value for name, value in row.items()})
        return out.getvalue()

    def markdown(self, top: int | None = None) -> str:
        """Regions (the `top` longest) as a Markdown table with all columns, and readable units."""
        rows, about = self._longest(top), [] if self.info is None else [self.info.line]
        lines = [_line(["kernel", *self.by, "region", *CELLS])]
        lines.append(_line(["---"] * (2 + len(self.by)) + ["--:"] * len(CELLS)))
        for row in rows:
            lines.append(_line([row.kernel, *map(str, row.key), row.region, *(show(row) for show in CELLS.values())]))
        remarks = [*about, *hints(rows), *self.notes, *(problem.text for problem in self.problems)]
        return "\n".join([*lines, "", *(f"* {_plain(one)}" for one in remarks)]) + "\n"

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row per region and the fields of RegionStats; one column per part of the key.

        Raises:
            MissingError: pandas is not installed.
        """
        pandas = import_pandas("Summary.to_pandas()")
        names = [name for field in fields(RegionStats) for name in (self.by if field.name == "key" else (field.name,))]
        return pandas.DataFrame(self.to_dicts(), columns=names)

    def text(self, width: int | None = None, top: int | None = 50) -> str:
        """The table for a terminal.

        Args:
            width: columns; None for this terminal's. Columns of the table that do not fit are left out.
            top: rows of each kind, longest first; None for all.
        """
        return render(self, width, top)

    def _longest(self, top: int | None) -> list[RegionStats]:
        """The `top` regions with the longest totals, in the summary's order; None for all."""
        rows = list(self.regions)
        if top is None or len(rows) <= top:
            return rows
        kept = sorted(range(len(rows)), key=lambda index: -rows[index].warp_time_ns)[:top]
        return [rows[index] for index in sorted(kept)]


def _flat(row: RegionStats | WarpStats, by: Sequence[str]) -> dict[str, Any]:
    """A row as one dict; the key's parts replace the key."""
    found: dict[str, Any] = {}
    for field in fields(row):
        value = getattr(row, field.name)
        found |= dict(zip(by, value, strict=True)) if field.name == "key" else {field.name: value}
    return found


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    """Text with Markdown's special characters escaped."""
    escaped = "".join(_ESCAPES.get(char, char) if char.isprintable() else " " for char in text)
    return " ".join(escaped.split())
