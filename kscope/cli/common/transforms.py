"""`--rename ld_*=load --regroup wait_*=waits`: transforms of a trace as flags, applied before filters.

--rename task=load,mma,store     several names: each record's by its value, 0, 1, 2
"""

from __future__ import annotations

import argparse

from ...errors import UsageError
from ...trace import Trace
from ...tracedata import transforms


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    group = parser.add_argument_group("names and tracks")
    about = "rename regions; OLD may be a pattern, and NEW several names, by value: task=load,mma"
    group.add_argument("--rename", metavar="OLD=NEW", action="append", default=[], help=about)
    about = "draw these regions on a separate row below their warp; REGION may be a pattern"
    group.add_argument("--regroup", metavar="REGION=TRACK", action="append", default=[], help=about)


def with_new_names(trace: Trace, options: argparse.Namespace) -> Trace:
    """The trace with renamed regions and tracks.

    Raises:
        UsageError: no such region.
    """
    for old, new in (_pair("--rename", text) for text in options.rename):
        trace = transforms.rename(trace, {old: new.split(",") if "," in new else new})
    for region, track in (_pair("--regroup", text) for text in options.regroup):
        trace = transforms.regroup(trace, {region: track})
    return trace


def _pair(flag: str, text: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not left or not equals or not right:
        raise UsageError(f"{flag} {text}: expected two names with = between them, such as {flag} load=copy")
    return left, right
