"""A delay planted on one rank: what `kscope ranks` says of each step, against who came last in truth."""

from __future__ import annotations

from collections.abc import Sequence

from kscope.merging.ranks.skew import Arrival, Cause

FAR_NS = 5_000
"""Signals between ranks, which take less than 1 us, show the order of arrivals that are farther apart than this."""


def causes(arrivals: Sequence[Arrival], last: Sequence[int], rank: int, steps: Sequence[int]) -> list[Cause]:
    """Check who came last in every step, and that the planted rank did in nearly all planted steps.

    Args:
        arrivals: what kscope says of each step.
        last: the rank that came last in truth; -1 where ranks came too close together.
        rank, steps: where the delay was planted.

    Returns:
        The causes that kscope names for the planted steps in which the planted rank came last.
    """
    for one, truth in zip(arrivals, last, strict=True):
        if one.skew_ns > FAR_NS:
            assert (one.last, one.sure) == (truth, True), one
    late = [arrivals[step] for step in steps if last[step] == rank]
    assert len(late) >= 0.95 * len(steps)
    assert all(one.skew_ns > FAR_NS and one.last == rank for one in late)
    return [one.cause for one in late if one.cause is not None]
