"""Stall samples over time as counters of a timeline: one for each kernel, in samples per microsecond."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..capture.samples import Rows
from ..util.arrays import Float, Int64
from ..util.json_values import single_line
from .launch_rows import LaunchRow
from .timeline import Timeline

MOST = 32
"""Most kernels, those with the most samples."""
MOST_LAUNCHES = 1 << 14
"""Most launches of a kernel; with more its windows are drawn whole."""
UNIT = "samples per us"


@dataclass(frozen=True, eq=False)
class Counter:
    """Samples of a kernel.

    Attributes:
        name: of the counter.
        time: (n,) UNIX ns at which it changes, ascending.
        rate: (n,) samples per microsecond from then on; the last one is 0.
    """

    name: str
    time: Int64
    rate: Float


def counters(timeline: Timeline, launches: Mapping[int, LaunchRow]) -> Iterator[Counter]:
    """The counters, most samples first; none if the times of samples are unknown.

    A sample has no time, but is read in a known window. A kernel with records was sampled while its launches ran, so
    the window's samples are drawn where it overlaps with them; those of other kernels are drawn over the whole window.

    Args:
        timeline: the timeline.
        launches: its launches, by number.
    """
    samples = timeline.trace.samples
    if samples is None or not len(samples.windows):
        return
    ran = defaultdict[int, list[tuple[int, int]]](list)
    if not timeline.trace.filtered:  # else samples also belong to launches that are not here
        for launch, row in launches.items():
            kernel = timeline.trace.launches[launch].kernel_id
            ran[kernel].append((timeline.origin + row.begin, timeline.origin + max(row.end, row.begin + 1)))
    windows = samples.windows
    totals = np.bincount(windows["function"], windows["count"].astype(np.float64), len(samples.functions))
    for number in np.argsort(-totals, kind="stable")[:MOST].tolist():
        function = samples.functions[number]
        own = windows[windows["function"] == number]
        if len(own):
            begin, end, rate = _drawn(own, ran.get(function.kernel or 0, []))
            name = f"stall samples: {single_line(function.name)}"
            yield Counter(name, *_steps(begin, end, rate))


def _drawn(windows: Rows, launches: list[tuple[int, int]]) -> tuple[Int64, Int64, Float]:
    """Begins, ends and rates (n,) of disjoint times with samples, in order of time."""
    begin, end, count = (windows[name].astype(np.int64) for name in ("begin", "end", "count"))
    end[:-1] = np.minimum(end[:-1], begin[1:])  # damaged ones may overlap
    kept = end > begin
    begin, end, count = begin[kept], end[kept], count[kept]
    if not 0 < len(launches) <= MOST_LAUNCHES:
        return begin, end, count / ((end - begin) / 1000)
    first, last = _union(launches)
    low, high = np.searchsorted(last, begin, "right"), np.searchsorted(first, end, "left")
    parts = [
        (np.maximum(first[a:b], c), np.minimum(last[a:b], d)) if b > a else (np.array([c]), np.array([d]))
        for a, b, c, d in zip(low.tolist(), high.tolist(), begin.tolist(), end.tolist(), strict=True)
    ]
    rates = [
        np.full(len(c), n / (float((d - c).sum()) / 1000)) for (c, d), n in zip(parts, count.tolist(), strict=True)
    ]
    return np.concatenate([c for c, _ in parts]), np.concatenate([d for _, d in parts]), np.concatenate(rates)


def _union(spans: list[tuple[int, int]]) -> tuple[Int64, Int64]:
    """The union of spans as disjoint ones, in order of time."""
    found = np.array(sorted(spans), np.int64)
    reach = np.maximum.accumulate(found[:, 1])
    new = np.append(True, found[1:, 0] > reach[:-1])
    return found[new, 0], reach[np.append(np.flatnonzero(new)[1:] - 1, len(found) - 1)]


def _steps(begin: Int64, end: Int64, rate: Float) -> tuple[Int64, Float]:
    """Times and values of the counter's changes: 0 after a time that the next one does not follow at once."""
    gap = np.append(begin[1:] > end[:-1], True)
    time = np.concatenate([begin, end[gap]])
    order = np.argsort(time, kind="stable")
    return time[order], np.concatenate([rate, np.zeros(int(gap.sum()))])[order]
