"""Tables of what ran on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .table import kind

PLACEMENTS = ("fence", "schedule")


def text(found: Sequence[Mapping[str, Any]]) -> str:
    """A row for each entry, then what to look at."""
    entries = _entries(found)
    lines = [
        "| entry | equal | records | lost | counts | fence: rest, recording | schedule: rest, recording | us |",
        "|---|" + "--:|" * 7,
    ]
    lines += [
        _row(f"{project} {name}", one) for (project, name), one in entries.items() if {"check", "time"} & set(one)
    ]
    for (project, name), one in entries.items():
        lines += [f"{project} {name}: {note}" for note in notes(one)]
    return "\n".join([*lines, summary(found)])


def _entries(found: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    for one in found:
        entries.setdefault((one["project"], one["name"]), {})[one["what"]] = one
    return entries


def rows(found: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Columns of each entry, by name: of a placement the results, records and refusals; percent; microseconds."""
    kept: dict[str, dict[str, Any]] = {}
    for (project, name), one in sorted(_entries(found).items()):
        check, time = one.get("check", {}), one.get("time", {})
        row: dict[str, Any] = {"failed": [part["failed"][:200] for part in one.values() if "failed" in part]}
        row |= {key: part[key] for part in (check, time) for key in ("repeats", "same counts", "us") if key in part}
        for p in PLACEMENTS:
            row[p] = {key: check[p][key] for key in ("equal", "records", "lost", "runs agree", "why") if p in check}
            row[p] |= time.get(p, {})
        kept[f"{project}.{name}"] = row
    return kept


def summary(found: Sequence[Mapping[str, Any]]) -> str:
    """Counts by project."""
    lines = []
    for project in sorted({one["project"] for one in found}):
        mine = [one for one in found if one["project"] == project and one["what"] == "check"]
        ran = [one for one in mine if "fence" in one]
        cells = [
            f"{len(mine)} checked",
            f"{len(mine) - len(ran)} failed",
            f"{sum(one['repeats'] for one in ran)} repeat",
        ]
        for p in PLACEMENTS:
            right = sum(one[p]["equal"] in ("bits", "within") for one in ran)
            complete = sum(one[p]["runs agree"] and not one[p]["lost"] for one in ran)
            cells.append(f"{p}: {right} right, {complete} complete, {sum(bool(one[p]['why']) for one in ran)} refused")
        cells.append(f"{sum(one['same counts'] for one in ran)} same counts")
        lines.append(f"{project}: " + ", ".join(cells))
    return "\n".join(lines)


def _row(name: str, one: Mapping[str, Any]) -> str:
    check, time = one.get("check", {}), one.get("time", {})
    cells = [name]
    if "fence" in check:
        cells.append(" ".join(check[p]["equal"] if len(check[p]["equal"]) < 8 else "NO" for p in PLACEMENTS))
        cells += [" ".join(str(check[p][what]) for p in PLACEMENTS) for what in ("records", "lost")]
        cells.append("same" if check["same counts"] and all(check[p]["runs agree"] for p in PLACEMENTS) else "DIFFER")
    else:
        cells += ["failed" if "failed" in check else "", "", "", ""]
    for p in PLACEMENTS:
        cells.append(f"{time[p]['at rest']:+.1f}, {time[p]['recording']:+.1f}" if p in time else "")
    return "| " + " | ".join([*cells, str(time.get("us", time.get("how", "")))]) + " |"


def notes(one: Mapping[str, Any]) -> list[str]:
    """Unexpected results."""
    found = [f"{what}: {result['failed']}" for what, result in one.items() if "failed" in result]
    check = one.get("check", {})
    for p in PLACEMENTS:
        if p not in check:
            continue
        mine = check[p]
        found += [f"{p}: {mine['equal']}"] if mine["equal"] not in ("bits", "within") else []
        found += [f"{p}: runs differ"] if not mine["runs agree"] else []
        found += [f"{p}: {mine['negative']} negative"] if mine["negative"] else []
        found += [f"{p}: {text[:150]}" for text in mine["other"][:2]]
        found += [f"refused: {kind(text.partition('schedule')[2][2:])}" for text in mine["why"]]
    if check.get("differ"):
        found.append(f"counts differ: {check['differ'][:2]}")
    if check.get("plain again") not in (None, "bits", "within"):
        found.append(f"plain again: {check['plain again']}")
    return found
