"""Updates the tables of docs/design/performance.md from files of bench/gpu.py.

    python bench/tables.py bench-gpu.json ...            several files: the last one that has a section wins
    python bench/tables.py --print bench-gpu.json        print only; changes no file

A table is in the document between `<!-- bench: NAME -->` and `<!-- bench end -->`; NAME is one of TABLES. A table
whose section was not measured stays as it is.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rows import Report, Row, Section, doubts, line, read

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "design" / "performance.md"
MARKED = re.compile(r"(<!-- bench: (\w+) -->\n).*?(<!-- bench end -->)", re.S)
Lines = list[str]
Cells = dict[str, dict[str, Row]]


def cells(rows: Sequence[Row]) -> Cells:
    """Rows by what, then where, in the order of their first."""
    found: Cells = {}
    for one in rows:
        found.setdefault(one.what, {})[one.where] = one
    return found


def grid(head: Sequence[str], body: Sequence[Sequence[str]]) -> Lines:
    return [line(head), line(["---", *["--:"] * (len(head) - 1)]), *map(line, body)]


def number(one: Row | None, digits: int = 1, sign: str = "") -> str:
    """The median; "-" if it was not measured."""
    return "-" if one is None else f"{one.value:{sign},.{digits}f}"


def spread(one: Row | None, digits: int = 1) -> str:
    """The median, and the least and the most."""
    if one is None or one.runs == 1:
        return number(one, digits)
    return f"{one.value:,.{digits}f} ({one.least:,.{digits}f} to {one.most:,.{digits}f})"


def _median_place(where: str) -> str:
    return f"{where}, median place"


def of_places(rows: Sequence[Row]) -> Lines:
    """A region's cycles at the best place and the median one, its instructions, and where records go."""
    found = cells(rows)
    places = [where for where in dict.fromkeys(one.where for one in rows) if not where.endswith("median place")]
    body = []
    for what, by in found.items():
        both = [f"{number(by.get(p))}, {number(by.get(_median_place(p)))}" for p in places]
        notes = next(iter(by.values())).notes
        body.append([what, *(one.removesuffix(", -") for one in both), str(notes.get("sass", "")), _to(notes)])
    return grid(["cycles", *places, "instructions", "records go to"], body)


def _to(notes: dict[str, object]) -> str:
    return str(notes.get("records", ""))


def of_cycles(rows: Sequence[Row]) -> Lines:
    """Cycles, a column per circumstance."""
    places = list(dict.fromkeys(one.where for one in rows))
    body = [[what, *(number(by.get(place)) for place in places)] for what, by in cells(rows).items()]
    return grid(["cycles", *places], body)


_PROTON = ("Proton shared clock32", "Proton global clock32")
_SCHEDULED = ("Proton shared sched_stores", "Proton global sched_stores")


def of_profilers(rows: Sequence[Row]) -> Lines:
    """Percent that profilers add to each kernel, and kernels for which kscope costs more than Proton's best."""
    found, body = cells(rows), []
    for kernel in (what for what in found if "," not in what):
        added = found.get(f"{kernel}, added", {})

        def percents(*variants: str, added: dict[str, Row] = added) -> str:
            return ", ".join(number(added.get(one), sign="+") for one in variants)

        proton = [added[one].value for one in ("Proton default", *_PROTON, *_SCHEDULED) if one in added]
        ours = added.get("kscope Elected")
        lost = ours.value - min(proton) if ours and proton else 0.0
        single = ("kscope at rest", "kscope Elected", "clock reads alone", "Proton default")
        columns = (*((one,) for one in single), _PROTON, _SCHEDULED)
        mark = f"**loses by {lost:.1f}**" if lost > 0 else ""
        body.append([kernel, spread(found[kernel].get("off"), 2), *(percents(*one) for one in columns), mark])
    head = ["kernel", "plain, us", "kscope at rest", "recording", "clock reads alone", "Proton default"]
    head += ["Proton clock32: shared, global", "with sched_stores: shared, global", "recording beside Proton's best"]
    return [*grid(head, body), "", "Percent of the plain kernel's time; losses in percentage points.", ""]


def of_kernels(rows: Sequence[Row]) -> Lines:
    """Triton's kernels: time, added time, registers, spills, warps that fit."""
    found, body = cells(rows), []
    for kernel in (what for what in found if "," not in what):
        for variant, time in found[kernel].items():
            added, *rest = (
                found.get(f"{kernel}, {what}", {}).get(variant)
                for what in ("added", "registers", "spill instructions", "warps on an SM")
            )
            percent = "" if variant == "off" else f"{number(added, sign='+')} %"
            body.append([f"{kernel}: {variant}", spread(time, 2), percent, *(number(one, 0) for one in rest)])
    return of_profilers(rows) + grid(["kernel: variant", "us", "added", "registers", "spills", "warps on an SM"], body)


def of_languages(rows: Sequence[Row]) -> Lines:
    """Each kernel in every language: plain time, and the time that other states add."""
    found, body = cells(rows), []
    for what in (what for what in found if not what.endswith(("added", "registers"))):
        added, registers = found.get(f"{what}, added", {}), found.get(f"{what}, registers", {})
        percents = [f"{number(added.get(state), sign='+')} %" for state in ("at rest", "recording")]
        counts = [number(registers.get(state), 0) for state in ("plain", "recording")]
        body.append([what, spread(found[what].get("plain")), *percents, *counts])
    return grid(["kernel, language", "plain, us", "at rest", "recording", "registers plain", "recording"], body)


def of_launches(rows: Sequence[Row]) -> Lines:
    """Times, and their difference from the baseline of the same process or compiler."""
    found, body = cells(rows), []
    for what in (what for what in found if not what.endswith("added")):
        for where, time in found[what].items():
            added = found.get(f"{what}, added", {}).get(where)
            body.append([f"{what}: {where}", spread(time), f"{number(added, sign='+')} %" if added else ""])
    return grid(["", "us", "added"], body)


def of_growth(rows: Sequence[Row]) -> Lines:
    """Milliseconds as work grows, and whether all records arrived."""
    steps = ("at rest", "recording", "until collected", "decoded")
    found, body = cells(rows), []
    for where in dict.fromkeys(one.where for one in rows):
        by = {step: found.get(step, {}).get(where) for step in steps}
        notes = by["recording"].notes if by["recording"] else {}
        times = ["-" if one is None else f"{one.value / 1000:,.3g}" for one in by.values()]
        body.append([where, *times, f"{notes.get('records', 0):,}", f"{notes.get('lost', 0):,}"])
    return grid(["", *(f"{step}, ms" for step in steps), "records", "lanes lost"], body)


TABLES: dict[str, Callable[[Sequence[Row]], Lines]] = {
    "regions": of_places, "inflight": of_places, "nested": of_cycles, "warps": of_cycles, "loops": of_cycles,
    "numba": of_places, "triton": of_kernels, "everywhere": of_languages, "cute": of_launches, "cuda": of_launches,
    "growth": of_growth, "placement": of_launches,
}  # fmt: skip
"""Table builders by section."""


def source(report: Report, section: Section) -> str:
    """One line on the machine, versions and date of the numbers."""
    machine = {"driver": "?", "most": "?", **report.machine}
    packages = ", ".join(f"{name} {version}" for name, version in sorted(report.versions.items()))
    least = min((one.runs for one in section.rows), default=0)
    runs = f"{least} {'run' if least == 1 else 'runs'} or more"
    gpu = f"{machine['gpu']} (driver {machine['driver']}, SM clock up to {machine['most']})"
    return f"{gpu}; {packages}; {report.started}; `{' '.join(report.command)}`: medians of {runs}."


def made(name: str, report: Report, section: Section) -> str:
    """A section's table, its doubts, and its provenance."""
    failed = f"{section.state}: " if section.state != "ok" else ""
    messages = [failed + section.message] if failed or section.message else []
    lines = [f"* {text}" for text in (*messages, *doubts(section.rows))]
    parts = [TABLES[name](section.rows), lines, [source(report, section)]]
    return "\n\n".join("\n".join(part) for part in parts if part)


def measured(reports: Sequence[Report]) -> dict[str, tuple[Report, Section]]:
    """Sections with rows, each from the last report that has it."""
    return {one.name: (report, one) for report in reports for one in report.sections if one.rows}


def renewed(text: str, reports: Sequence[Report]) -> str:
    """The document with updated tables. Raises ValueError for an unknown table name, and for a dry run."""
    found = measured(reports)
    if any("--dry-run" in report.command for report in reports):
        raise ValueError("a dry run measures nothing: --print shows what it counted")

    def table(match: re.Match[str]) -> str:
        begin, name, end = match.groups()
        if name not in TABLES:
            raise ValueError(f"no table is called {name}; there are {', '.join(TABLES)}")
        return f"{begin}\n{made(name, *found[name])}\n\n{end}" if name in found else match[0]

    return MARKED.sub(table, text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    parser.add_argument("--print", action="store_true")
    options = parser.parse_args()
    reports = [read(path) for path in options.files]
    if options.print:
        parts = [f"## {name}\n\n{made(name, *found)}" for name, found in measured(reports).items()]
        print("\n\n".join(parts))
        return 0
    before = options.document.read_text()
    after = renewed(before, reports)
    options.document.write_text(after)
    tables = {match[2] for match in MARKED.finditer(before)}
    print(f"{options.document}: renewed {', '.join(sorted(tables & set(measured(reports)))) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
