"""What a timeline is asked to show, beside which records.

What lives here: the options and what they may be. What does not: how formats draw them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError

GROUPS = ("sm", "block", "warp")
"""What stands between a launch and its lanes."""
PROCESSES = ("launches", "groups")
"""What a timeline's processes are."""


@dataclass(frozen=True)
class View:
    """group: a launch holds SMs, blocks, or warps (a warp's number is its role), which hold the lanes.
    processes: of what viewers fold first; "groups" turns a group and its launches over: an SM holds launches, which
    hold the lanes.
    args: slices carry their cycles, exact ns and value, lifetimes what recording cost the warp.
    flows: pairs of region names; an arrow goes from a record of the first to each record of the second
    in the same block that has the same value (flows.py).
    """

    group: str = "sm"
    args: bool = True
    flows: tuple[tuple[str, str], ...] = ()
    processes: str = "launches"


def view(group: object = "sm", args: object = True, flows: object = (), processes: object = "launches") -> View:
    """The options as a user gives them. Raises UsageError that says what may be given."""
    if group not in GROUPS:
        raise UsageError(f"export(group={group!r}): expected one of {', '.join(GROUPS)}")
    if processes not in PROCESSES:
        raise UsageError(f"export(processes={processes!r}): expected one of {', '.join(PROCESSES)}")
    if not isinstance(args, bool):
        raise UsageError(f"export(args={args!r}): expected True or False")
    return View(str(group), args, tuple(_pairs(flows)), str(processes))


def _pairs(flows: Any) -> Iterator[tuple[str, str]]:
    pairs = flows.items() if isinstance(flows, dict) else flows if isinstance(flows, (list, tuple)) else [flows]
    for pair in pairs:
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and all(isinstance(name, str) for name in pair)):
            raise UsageError(f'export(flows={flows!r}): expected pairs of region names, such as [("load", "dot")]')
        yield pair[0], pair[1]
