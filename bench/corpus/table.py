"""A table of verdicts: one row for each source, and how often each reason was given."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any


def rows(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Counts by source."""
    found: dict[str, dict[str, int]] = {}
    for source in sorted({one["source"] for one in verdicts}):
        mine = [one for one in verdicts if one["source"] == source and one["plain"]]
        how = Counter(one["schedule"] for one in mine)
        found[source] = {
            "kernels": len(mine),
            "recorded": how["recorded"],
            "refused": how["refused"],
            "rejected": how["rejected"],
            "crashed": how["crashed"] + sum(one["fence"] == "crashed" for one in mine),
            "strip test failed": sum(bool(one["stripped"]) for one in mine),
            "fewer warps": sum(one["warps"][1] < one["warps"][0] for one in mine),
            "fence recorded": sum(one["fence"] == "recorded" for one in mine),
            "fence not assembled": sum(one["fence"] == "not assembled" for one in mine),
            "fence spills more": sum(one["fence_spills"][1] > one["fence_spills"][0] for one in mine),
            "fence more registers": sum(one["fence_registers"][1] > one["fence_registers"][0] for one in mine),
            "fence problem occupancy": sum("occupancy" in one["problems"] for one in mine),
            "with fence": sum(bool(one["fence"]) for one in mine),
            "compared with source": sum(one["same"] is not None for one in mine),
            "same as source": sum(one["same"] is True for one in mine),
        }
    return found


def reasons(verdicts: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Reasons why kernels were not recorded with placement="schedule", the most frequent first."""
    return Counter(f"{one['schedule']}: {kind(one['why'])}" for one in verdicts if one["why"]).most_common()


def wrong(verdicts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The kernels with which recording crashed or changed an instruction."""
    return [one["name"] for one in verdicts if one["stripped"] or "crashed" in (one["schedule"], one["fence"])]


def text(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Both, to read."""
    found = rows(verdicts)
    total = {key: sum(row[key] for row in found.values()) for key in next(iter(found.values()))}
    lines = []
    for source, row in [*found.items(), ("all", total)]:
        lines.append(f"{source}: " + ", ".join(f"{value} {key}" for key, value in row.items()))
    lines += [f"{count:5} {reason}" for reason, count in reasons(verdicts)]
    for one in verdicts:
        if one["stripped"]:
            lines.append(f"strip test: {one['source']} {one['name']}: {one['stripped']}")
        if one["fence"] in ("crashed", "not assembled"):
            lines.append(f"fence {one['fence']}: {one['source']} {one['name']}: {one['fence_why']}")
    return "\n".join(lines)


def kind(message: str) -> str:
    """A message without what differs between kernels."""
    message = message.split(", and ")[0]
    message = re.sub(r"^[\w.$]+: ", "", message)
    message = re.sub(r"^\S+ (leaves no|would need|cannot be moved: CALL)\b.*", r"\1 ...", message)
    message = re.sub(r"'[^']*'", "'...'", message)
    message = re.sub(r"\b(line|marks?|statements?) \S+", r"\1 #", message) if "//kscope" in message else message
    return re.sub(r"-?0x[0-9a-f]+|\b[RP]\d+\b|\bU[RP]\d+\b|(?<![\w.])\d+", "#", message)[:160]
