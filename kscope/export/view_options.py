"""View options of timelines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from ..errors import UsageError

GROUPS = ("sm", "block", "warp")
PROCESSES = ("launches", "groups")


@dataclass(frozen=True)
class View:
    """Options of a timeline.

    Attributes:
        group: how the warps of a launch are grouped: by "sm", "block", or "warp" (the warp's index, i.e. its role).
        processes: top level of the timeline: "launches", or "groups", which then hold launches.
        args: slices carry cycles, exact ns and value; lifetimes carry the recording cost of the warp.
        flows: pairs of region names. An arrow goes from a record of the first to each record of the second with the
            same value in the same block (flows.py).
        peers: the same across devices: a record's value is the number of the other device (peer_flows.py).
    """

    group: str = "sm"
    args: bool = True
    flows: tuple[tuple[str, str], ...] = ()
    processes: str = "launches"
    peers: tuple[tuple[str, str], ...] = ()


VIEW_OPTIONS = tuple(field.name for field in fields(View))


def view(
    group: object = "sm", args: object = True, flows: object = (), processes: object = "launches", peers: object = ()
) -> View:
    """Validate view options.

    Args:
        group, args, processes: as in View.
        flows, peers: pairs of region names as a list, or a dict.

    Raises:
        UsageError: an option is invalid.
    """
    if group not in GROUPS:
        raise UsageError(f"export(group={group!r}): expected one of {', '.join(GROUPS)}")
    if processes not in PROCESSES:
        raise UsageError(f"export(processes={processes!r}): expected one of {', '.join(PROCESSES)}")
    if not isinstance(args, bool):
        raise UsageError(f"export(args={args!r}): expected True or False")
    return View(str(group), args, tuple(_pairs(flows)), str(processes), tuple(_pairs(peers)))


def _pairs(flows: Any) -> Iterator[tuple[str, str]]:
    pairs = flows.items() if isinstance(flows, dict) else flows if isinstance(flows, (list, tuple)) else [flows]
    for pair in pairs:
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and all(isinstance(name, str) for name in pair)):
            raise UsageError(f'export(flows={flows!r}): expected pairs of region names, such as [("load", "dot")]')
        yield pair[0], pair[1]
