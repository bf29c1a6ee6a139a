"""The result format of bench/: rows, a table and a JSON file.

    {"schema": 1, "command": [...], "started": "...", "machine": {...}, "versions": {...},
     "sections": [{"name": "...", "seconds": 1.5, "state": "ok" | "failed" | "skipped", "message": "...", "rows": [
         {"what": "...", "where": "...", "unit": "cycles", "value": 44.5, "least": 44.1, "most": 47.0, "runs": 9,
          "notes": {...}}]}]}

value is the median of `runs` runs, least and most are their spread.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

SCHEMA = 1
STATES = ("ok", "failed", "skipped")
Notes = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One number. what: the thing measured; where: the circumstances."""

    what: str
    where: str
    unit: str
    value: float
    least: float
    most: float
    runs: int
    notes: Notes = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """The rows of one section, or a message that says why there are none."""

    name: str
    seconds: float
    state: str
    message: str = ""
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Report:
    command: list[str]
    started: str
    machine: Notes
    versions: dict[str, str]
    sections: tuple[Section, ...]
    schema: int = SCHEMA


def row(what: str, where: str, unit: str, values: Iterable[float], **notes: Any) -> Row:
    """The row of some runs."""
    seen = sorted(values)
    return Row(what, where, unit, _short(statistics.median(seen)), _short(seen[0]), _short(seen[-1]), len(seen), notes)


def machine() -> Notes:
    """The host and its Python."""
    return {"host": f"{os.cpu_count()}-core {platform.machine()}", "python": platform.python_version()}


def about_host() -> str:
    """The same and numpy, as a line of text."""
    return "{host}, Python {python}, numpy ".format(**machine()) + metadata.version("numpy")


def to_dict(report: Report) -> dict[str, Any]:
    """The report as JSON values."""
    return asdict(report)


def write(report: Report, path: Path) -> None:
    path.write_text(json.dumps(to_dict(report), indent=1) + "\n")


def from_dict(data: Any) -> Report:
    """Inverse of to_dict(). Raises ValueError for anything else."""
    _check(
        isinstance(data, dict) and data.get("schema") == SCHEMA,
        "schema",
        data if not isinstance(data, dict) else data.get("schema"),
    )
    for name, kind in (("command", list), ("started", str), ("machine", dict), ("versions", dict), ("sections", list)):
        _check(isinstance(data.get(name), kind), name, data.get(name))
    sections = []
    for one in data["sections"]:
        _check(isinstance(one, dict) and set(one) == {"name", "seconds", "state", "message", "rows"}, "a section", one)
        _check(one["state"] in STATES, "state", one["state"])
        _check(one["state"] != "ok" or bool(one["rows"]), f"rows of {one['name']}", one["rows"])
        sections.append(
            Section(one["name"], float(one["seconds"]), one["state"], one["message"], tuple(map(_row, one["rows"])))
        )
    return Report(data["command"], data["started"], data["machine"], data["versions"], tuple(sections))


def read(path: Path) -> Report:
    """A report that was written. Raises ValueError."""
    return from_dict(json.loads(path.read_text()))


def table(report: Report) -> str:
    """All rows in Markdown, section by section."""
    machine = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    versions = ", ".join(f"{name} {value}" for name, value in sorted(report.versions.items()))
    lines = [f"{report.started}: {machine}", versions, f"`{' '.join(report.command)}`"]
    for section in report.sections:
        lines += ["", f"## {section.name} ({section.seconds:.0f} s)", ""]
        if section.state != "ok":
            lines.append(f"{section.state}: {section.message}")
        lines += _grid(section.rows)
    return "\n".join(lines)


def _grid(rows: Sequence[Row]) -> list[str]:
    """A table: one column per circumstance if there are few, else one line per row."""
    if not rows:
        return []
    places = list(dict.fromkeys(row.where for row in rows))
    units = {row.unit for row in rows}
    if len(places) <= 8 and len(units) == 1:
        cells: dict[str, dict[str, str]] = {}
        for one in rows:
            cells.setdefault(one.what, {})[one.where] = _spread(one)
        head = [units.pop(), *places]
        body = [[what, *(found.get(place, "-") for place in places)] for what, found in cells.items()]
    else:
        head = ["what", "where", "median", "least", "most", "unit"]
        body = [[r.what, r.where, *(f"{n:,.6g}" for n in (r.value, r.least, r.most)), r.unit] for r in rows]
    found = [line(head), line(["---", *["--:"] * (len(head) - 1)]), *map(line, body)]
    notes = doubts(rows)
    return found + ([""] + [f"! {text}" for text in notes] if notes else [])


def doubts(rows: Sequence[Row]) -> list[str]:
    """Doubts about rows, with the rows' names."""
    return [f"{one.what}, {one.where}: {text}" for one in rows for text in [one.notes.get("doubt")] if text]


def _spread(one: Row) -> str:
    if one.runs == 1 or one.least == one.most:
        return f"{one.value:,.5g}"
    return f"{one.value:,.5g} ({one.least:,.5g} to {one.most:,.5g})"


def line(cells: Sequence[str]) -> str:
    """A line of a table in Markdown."""
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def _row(data: Any) -> Row:
    names = ("what", "where", "unit", "value", "least", "most", "runs", "notes")
    _check(isinstance(data, dict) and set(data) == set(names), "a row", data)
    _check(all(isinstance(data[name], str) for name in names[:3]), "a row's words", data)
    numbers = [data[name] for name in names[3:6]]
    _check(all(isinstance(n, (int, float)) and math.isfinite(n) for n in numbers), "a row's numbers", data)
    _check(numbers[1] <= numbers[0] <= numbers[2] and data["runs"] > 0, "a row's spread", data)
    return Row(**data)


def _check(holds: bool, what: str, found: object) -> None:
    if not holds:
        raise ValueError(f"{what} is {str(found)[:80]}")


def _short(number: float) -> float:
    """Six digits, the precision of the clocks."""
    return float(f"{number:.6g}")
