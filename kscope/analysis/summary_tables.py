"""A summary as dicts, CSV and Markdown."""

from __future__ import annotations

import csv as text_csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any

from ..util.packages import import_pandas
from .summary_data import RegionStats, SummaryData
from .summary_text import CELLS, hints

_ESCAPES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", **{mark: f"\\{mark}" for mark in "\\|`*_[]"}}


def flat(row: Any, by: Sequence[str]) -> dict[str, Any]:
    """A dataclass with a `key` as one dict; the key's parts replace the key."""
    found: dict[str, Any] = {}
    for field in fields(row):
        value = getattr(row, field.name)
        if field.name == "key":
            found.update(zip(by, value, strict=True))
        else:
            found[field.name] = value
    return found


def longest(summary: SummaryData, top: int | None) -> list[RegionStats]:
    """The `top` regions with the longest totals, in the summary's order; None for all."""
    rows = list(summary.regions)
    if top is None or len(rows) <= top:
        return rows
    kept = sorted(range(len(rows)), key=lambda index: -rows[index].warp_time_ns)[:top]
    return [rows[index] for index in sorted(kept)]


def to_dict(summary: SummaryData, top: int | None) -> dict[str, Any]:
    """The whole summary; `left_out` has the number of regions beyond `top`."""
    regions = longest(summary, top)
    shown = {(row.kernel, row.key) for row in regions}
    cut = len(regions) < len(summary.regions)
    warps = [row for row in summary.warps if not cut or (row.kernel, row.key) in shown]
    return {
        "recorded": None if summary.info is None else summary.info.to_dict(),
        "by": list(summary.by),
        "tick_ns": summary.tick_ns,
        "regions": [flat(row, summary.by) for row in regions],
        "left_out": {"regions": len(summary.regions) - len(regions)} if cut else {},
        "warps": [flat(row, summary.by) for row in warps],
        "points": [asdict(row) for row in summary.points],
        "problems": [asdict(row) for row in summary.problems],
        "notes": list(summary.notes),
    }


def frame(summary: SummaryData) -> Any:
    """The regions as a pandas.DataFrame. Raises MissingError without pandas."""
    pandas = import_pandas("Summary.to_pandas()")
    return pandas.DataFrame([flat(row, summary.by) for row in summary.regions], columns=_columns(summary.by))


def _columns(by: Sequence[str]) -> list[str]:
    return [name for field in fields(RegionStats) for name in (by if field.name == "key" else (field.name,))]


def csv(summary: SummaryData, top: int | None) -> str:
    """A header line and a line per row; NaN is empty. '' without rows."""
    about = summary.info
    same = {} if about is None else {"clock": about.clock, "blocks": about.blocks, "grid_blocks": about.grid_blocks}
    found = [{**flat(row, summary.by), **same} for row in longest(summary, top)]
    if not found:
        return ""
    out = io.StringIO()
    writer = text_csv.DictWriter(out, list(found[0]), lineterminator="\n")
    writer.writeheader()
    for row in found:
        writer.writerow({name: "" if value != value else value for name, value in row.items()})
    return out.getvalue()


def markdown(summary: SummaryData, top: int | None = None) -> str:
    """One table of the `top` longest rows with all columns; numbers as in the terminal."""
    by = summary.by
    head = ["kernel", *by, "region", *CELLS]
    lines = [_line(head), _line(["---"] * (2 + len(by)) + ["--:"] * len(CELLS))]
    for row in longest(summary, top):
        lines.append(_line([row.kernel, *map(str, row.key), row.region, *(show(row) for show in CELLS.values())]))
    lines += ["", *(f"* {_plain(one)}" for one in _remarks(summary, top))]
    return "\n".join(lines) + "\n"


def _remarks(summary: SummaryData, top: int | None) -> list[str]:
    head = [] if summary.info is None else [summary.info.line]
    return [*head, *hints(longest(summary, top)), *summary.notes, *(problem.text for problem in summary.problems)]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    """Text with Markdown's special characters escaped."""
    escaped = "".join(_ESCAPES.get(char, char) if char.isprintable() else " " for char in text)
    return " ".join(escaped.split())
