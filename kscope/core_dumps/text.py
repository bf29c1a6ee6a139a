"""The verdict of a core dump as text."""

from __future__ import annotations

from collections.abc import Iterator

from ..util.text import counted
from .verdict import Group, LaunchState, Verdict

_MOST_CALLS = 3


def lines(found: Verdict) -> Iterator[str]:
    """The verdict, line by line."""
    driver = f", driver {found.driver}" if found.driver else ""
    yield f"core dump {found.file}: {found.device}{driver}"
    for problem in found.problems:
        yield f"! {problem}"
    for launch in found.launches:
        yield launch_line(launch)
        yield from (f"  {sentence(group)}" for group in launch.groups)
    if not found.launches:
        yield "no kernel was running"


def launch_line(launch: LaunchState) -> str:
    """A launch: how many of its blocks were running."""
    if not launch.warps:
        return f"{launch.kernel}, launch {launch.number}: none of its {counted(launch.blocks, 'block')} was running"
    running = f"{launch.running:,} of {counted(launch.blocks, 'block')} {'was' if launch.running == 1 else 'were'}"
    return f"{launch.kernel}, launch {launch.number}: {running} running, with {counted(launch.warps, 'warp')}"


def sentence(group: Group) -> str:
    """One group of warps: their numbers, their region, and their line."""
    several = group.count > 1
    blocks = f"block {group.blocks}" if group.block_count == 1 else f"{group.block_count:,} blocks ({group.blocks})"
    who = f"{'warp' if group.warps.isdecimal() else 'warps'} {group.warps} of {blocks}"
    failed = f" failed ({group.exception})," if group.exception else ""
    region = f" in `{group.region}`" if group.region else ""
    source = f": {group.source}" if group.source else ""
    where = f"{group.where}{source}" if group.where else f"{', '.join(group.code)} of {group.function or 'no module'}"
    threads = "threads of each" if several else "of its threads"
    called = f", called from {', '.join(group.called[:_MOST_CALLS])}" if group.called else ""
    rest = "".join(f"; {one.threads} {threads} at {one.where or one.code}" for one in group.elsewhere)
    return f"{who}{failed} {'were' if several else 'was'}{region} at {where}{called}{rest}"
