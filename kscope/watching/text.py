"""A verdict as text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from ..capture.pools.pool_reading import HostLaunch
from ..marks.operations import barrier, of_name
from ..util.text import counted
from .verdict import BEHIND, FINISHED, IN, Group, LaunchState, Verdict

STUCK_S = 5.0
"""Seconds without any change after which a verdict says so first."""
_MOST_LAUNCHES, _MOST_FRAMES = 3, 4


class Line(NamedTuple):
    """A line about the process. wrong: it says that something is."""

    text: str
    wrong: bool = False


def lines(found: Verdict) -> Iterator[str]:
    """The verdict, line by line."""
    yield from (line.text for line in head(found))
    for launch in found.launches:
        yield launch_line(launch)
        yield from (f"  {sentence(group)}" for group in launch.groups)
    yield from host(found)


def head(found: Verdict) -> Iterator[Line]:
    """The process, its errors, and whether anything changes."""
    command = " ".join(found.command) or "its command is not known"
    if found.running:
        state = "has ended its session" if found.ended else "is running"
    else:
        state = "is gone; it had ended its session" if found.ended else "is gone, without ending its session"
    yield Line(f"process {found.pid} ({command}) {state}; {found.device}")
    for problem in found.problems:
        yield Line(f"! {problem}", wrong=True)
    if found.running and found.unchanged_s is not None:
        if found.unchanged_s >= STUCK_S:
            since = f"{found.unchanged_s:.1f} s"
            yield Line(f"no progress for {since}: no warp entered or left a region, no launch was made", wrong=True)
        elif found.unchanged_s:
            yield Line(f"nothing has changed for {found.unchanged_s:.1f} s")
        else:
            rate = f": {found.enters_per_s:,.0f} regions entered a second" if found.enters_per_s else ""
            yield Line(f"in progress{rate}")
    if not found.launches:
        yield Line("no warp is running: every warp that recorded has finished")


def launch_line(launch: LaunchState) -> str:
    """A launch: how many blocks have begun, and how many warps have not finished."""
    begun = (
        f"{launch.begun:,} of {launch.blocks:,} blocks have begun" if launch.blocks else f"{launch.begun:,} blocks seen"
    )
    if launch.blocks and not launch.all_begun_known:
        begun = f"at least {begun}"
    warps = f"{counted(launch.unfinished, 'warp')} of these {'has' if launch.unfinished == 1 else 'have'} not finished"
    done = f", {launch.finished:,} {'has' if launch.finished == 1 else 'have'}" if launch.finished else ""
    return f"{launch.kernel}, launch {launch.number}: {begun}; {warps}{done}"


def sentence(group: Group) -> str:
    """One group of warps: their numbers, their place, and for how long."""
    several = group.count > 1
    blocks = f"block {group.blocks}" if group.block_count == 1 else f"{group.block_count:,} blocks ({group.blocks})"
    warps = f"warp {group.warps}" if group.warps.isdecimal() else f"warps {group.warps}"
    role = f"{group.role} " if group.role else ""
    who = f"{role}{warps} of {blocks}"
    value = f" ({known})" if (known := _barrier(group)) else ""
    if not value and (shown := values(group)):
        value = f" (value{'s' * (' ' in shown)} {shown})"
    region = f"`{group.region}`{value}" if group.region else "a region without a name"
    if group.state == IN:
        where = f"{'are' if several else 'is'} in {region}"
    elif group.state == BEHIND:
        where = f"{'have' if several else 'has'} left {region} and has entered no waiting region since"
    elif group.state == FINISHED:
        where = f"{'have' if several else 'has'} finished" + (f"; the last region was {region}" if group.region else "")
    else:
        where = f"{'have' if several else 'has'} begun and recorded nothing yet"
    place = f" at {group.where}" if group.where and group.state != FINISHED else ""
    since = ""
    if group.unchanged_s is not None and group.state != FINISHED and group.unchanged_s >= 0.05:
        since = f", unchanged for {group.unchanged_s:.1f} s"
    return f"{who} {where}{place}{since}"


def _barrier(group: Group) -> str:
    """The barrier that a wait of auto="pipeline" waits for; empty for other regions, and for several barriers."""
    operation = of_name(group.region or "")
    if operation is None or operation.operation != "wait" or group.values is None:
        return ""
    least, most = (barrier(int(one)) for one in group.values)
    if least != most:
        return ""
    of = f" of the cluster's block {least.block}" if least.block else ""
    return f"barrier {least.address:#x}{of}, parity {least.parity}"


def values(group: Group) -> str:
    """7, or 7 to 9; empty without values."""
    if group.values is None:
        return ""
    least, most = (f"{number:g}" if number % 1 else f"{int(number)}" for number in group.values)
    return least if least == most else f"{least} to {most}"


def host(found: Verdict) -> Iterator[str]:
    """The host's last launches."""
    if not found.host_launches:
        return
    yield "last launches of the host, newest first:"
    for kernel, launch in found.host_launches[:_MOST_LAUNCHES]:
        yield f"  {kernel}, number {launch.number + 1} of the session, {_ago(launch)}"
        for file, line, function in launch.stack[:_MOST_FRAMES]:
            yield f"    {file}:{line} in {function}"


def _ago(launch: HostLaunch) -> str:
    seconds = (time.time_ns() - launch.time) / 1e9
    return f"{seconds:.1f} s ago"
