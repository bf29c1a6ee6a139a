"""Idle time of warps in one result: waits, gaps by neighboring regions, and the longest gaps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import UsageError
from ..tracedata.data import TraceData
from ..tracedata.info import info
from ..util.progress import Step, no_progress
from .display import Shown
from .gaps import Between, Gap, gaps_by_neighbors, longest
from .overlap import Wait, waits
from .pipelines.waits import BarrierWait, barrier_waits
from .roles import Named


@dataclass(frozen=True, repr=False)
class Gaps(Shown):
    """Waits and gaps.

    Attributes:
        waits: time in waiting regions and in no region, by role, with what other warps did meanwhile.
        between: gaps by neighboring regions, longest total first.
        longest: the longest single gaps.
        barriers: waits for barriers by their causes, for a trace that was recorded with auto="pipeline".
        of: the region within which gaps were searched; None for time in no region.
        top: number of single gaps requested.
        caveat: as in Info.
    """

    waits: tuple[Wait, ...]
    between: tuple[Between, ...]
    longest: tuple[Gap, ...]
    barriers: tuple[BarrierWait, ...]
    of: str | None
    top: int
    caveat: str


def gaps(
    trace: TraceData,
    *,
    of: str | None = None,
    wait: Iterable[str] | None = None,
    roles: Named | None = None,
    top: int = 10,
    step: Step = no_progress,
) -> Gaps:
    """Find waits and gaps.

    Args:
        trace: the trace.
        of: gaps within this region instead of time in no region.
        wait: names of regions that wait; by default those with such a word in their name.
        roles: warp numbers by role name; inferred without.
        top: number of single gaps.
        step: progress callback, called with the number of new records done.

    Raises:
        UsageError: no such region, or a negative `top`.
    """
    if top < 0:
        raise UsageError(f"top={top}: expected a number of gaps")
    found = gaps_by_neighbors(trace, of), longest(trace, top, of)
    waiting = waits(trace, list(wait) if wait is not None else None, roles, step)
    return Gaps(waiting, *found, barrier_waits(trace, roles), of, top, info(trace).caveat)
