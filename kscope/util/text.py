"""Phrases shared by messages and tables."""

from __future__ import annotations

from collections.abc import Iterable


def counted(count: int, noun: str) -> str:
    """``1 record``, ``1,000 records``, ``2 launches``."""
    plural = noun + ("es" if noun.endswith(("s", "ch")) else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def install_command(extra: str) -> str:
    """The command that installs an extra of kscope."""
    return f"pip install '.[{extra}]' in a checkout of kscope"


def number_ranges(numbers: Iterable[int], most: int | None = None) -> str:
    """``0-3,8`` of ascending numbers; after `most` ranges the number of the others."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [f"{first}-{last}" if first < last else f"{first}" for first, last in runs]
    more = "" if most is None or len(parts) <= most else f" and {len(parts) - most:,} more"
    return ",".join(parts[:most]) + more
