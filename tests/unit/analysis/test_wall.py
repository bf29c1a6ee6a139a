"""Wall time of regions equals the length of the union of their spans."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import traces

from kscope.analysis import wall
from kscope.trace import Trace


def union(trace: Trace) -> float:
    """ns in which at least one span runs."""
    known = trace.dur_cycles > 0
    order = np.argsort(trace.start_ns[known])
    start, end = trace.start_ns[known][order], (trace.start_ns + trace.dur_ns)[known][order]
    reach = np.maximum.accumulate(end)
    begin = np.maximum(start, np.concatenate([start[:1], reach[:-1]]))
    return float(np.maximum(reach - begin, 0).sum())


def key(by: str, values: tuple[Any, ...]) -> dict[str, Any]:
    return {by: int(values[0])} if by else {}


@pytest.mark.parametrize("bins", [1, 8, 1 << 10], ids=lambda bins: f"{bins} bins")
@pytest.mark.parametrize("by", ["", "sm", "warp", "launch"])
def test_wall_time_is_the_length_of_the_union_of_spans(by: str, bins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wall, "_LEAST_BINS", bins)
    monkeypatch.setattr(wall, "_MOST_BINS", bins)
    for seed in range(6):
        trace = traces.trace(traces.lanes(random.Random(seed), blocks=1 + 4 * seed, launches=2))
        rows = trace.summary(by).regions
        assert rows
        for row in rows:
            mine = trace.filter(region=row.region, **key(by, row.key))
            assert row.wall_ns == pytest.approx(union(mine), abs=0.01 * max(1, row.count))
