"""Edges of the critical path as flags: --edge load:wait_full."""

from __future__ import annotations

import argparse

from ...analysis.critical_path import Edge
from ...errors import UsageError
from ...util.text import is_number


def parse_edges(typed: list[str] | None) -> list[Edge]:
    """`--edge load:wait_full` and `--edge mma:wait_empty:4` as edges. Raises UsageError."""
    found = []
    for text in typed or []:
        parts = text.split(":")
        if len(parts) not in (2, 3) or not parts[0] or not parts[1] or (len(parts) == 3 and not is_number(parts[2])):
            raise UsageError(
                f"--edge {text}: expected SIGNAL:WAIT or SIGNAL:WAIT:LAG, such as load:wait_full or mma:wait_empty:4"
            )
        found.append(Edge(parts[0], parts[1], int(parts[2]) if len(parts) == 3 else 0))
    return found


def add_edges(parser: argparse.ArgumentParser, what: str = "") -> None:
    """Add --edge. what: a phrase that completes its help."""
    about = f"the end of region SIGNAL satisfies region WAIT, LAG rounds later (0); may be repeated{what}"
    parser.add_argument("--edge", metavar="SIGNAL:WAIT[:LAG]", action="append", default=[], help=about)
