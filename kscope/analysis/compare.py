"""Compares two recordings: what became slower, by how much, and with what certainty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..errors import UsageError
from ..tracedata.data import TraceData
from ..tracedata.info import Info, info
from ..util.arrays import Float, Int64
from ..util.grouping import grouped
from ..util.runs import count_distinct
from .display import Shown
from .occupancy import waves
from .warp_regions import WarpRegions, warp_regions

Verdict = Literal["slower", "faster", "same", "new", "gone", "unsure"]
_LEAST_LAUNCHES, _LEAST_UNITS = 8, 2
_MOST_WEIGHTS = 1 << 24
_MOST_UNITS = 1 << 10
"""Largest stratum resampled value by value; larger ones are resampled in random groups. The number of groups makes the
interval's width uncertain by 2 %.
"""


@dataclass(frozen=True)
class Options:
    """Options of compare().

    Attributes:
        draws: number of bootstrap draws, at least 100.
        level: of the interval, from 0.5 to below 1.
        least: relative changes of the mean below it count as `same`.
        seed: of the draws; equal recordings give equal results.
    """

    draws: int = 2000
    level: float = 0.95
    least: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        if self.draws < 100:
            raise UsageError(f"draws={self.draws}: expected at least 100")
        if not 0.5 <= self.level < 1:
            raise UsageError(f"level={self.level}: expected a number from 0.5 to below 1, such as 0.95")
        if not 0 <= self.least < 10:
            raise UsageError(f"least={self.least}: expected a fraction such as 0.01")


@dataclass(frozen=True)
class Change:
    """A region of a kernel in two recordings.

    Attributes:
        kernel, region: their names.
        verdict: slower or faster if interval and change are on one side of `least`; new or gone if in only
            one of them; unsure if the interval includes both, or if there are too few units.
        a_count, b_count: spans.
        a_mean_ns, b_mean_ns: mean duration, ns.
        change: (b - a) / a.
        low, high: its interval; NaN without one.
        unit: the bootstrap's unit: launch, block or warp.
        a_units, b_units: number of units.
    """

    kernel: str
    region: str
    verdict: Verdict
    a_count: int
    b_count: int
    a_mean_ns: float
    b_mean_ns: float
    change: float
    low: float
    high: float
    unit: str
    a_units: int
    b_units: int


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Two recordings compared.

    Attributes:
        kernels: one row per kernel, from a launch's first start to its last end; the region is ``(kernel)``.
        regions: largest change of total time first.
        problems: reasons why the recordings may not be comparable.
        verdict: of the kernels' times, or of the regions if there are too few launches.
        recorded: how each of them was recorded.
    """

    kernels: tuple[Change, ...]
    regions: tuple[Change, ...]
    problems: tuple[str, ...]
    verdict: Verdict
    recorded: tuple[Info, Info]


WHOLE = "(kernel)"


def compare(a: TraceData, b: TraceData, options: Options | None = None) -> Comparison:
    """Compare two traces by kernel name and region name.

    The mean duration of a region is compared by a bootstrap: units of the recording are drawn with replacement, and the
    means of the draws are compared. The unit is a launch if both recordings have at least eight of the kernel, else a
    block, else a warp. With one launch each, the interval covers differences between blocks, not between runs.

    Raises:
        UsageError: an option is out of range.
    """
    options = options or Options()
    rng = np.random.default_rng(options.seed)
    sides = _Side.of(a), _Side.of(b)
    regions = []
    for kernel, region in sorted({*sides[0].rows, *sides[1].rows}):
        unit = _unit(sides, kernel)
        before, after = (side.units(kernel, region, unit) for side in sides)
        regions.append(_change(kernel, region, unit, before, after, options, rng))
    kernels = []
    for kernel in sorted({*sides[0].times, *sides[1].times}):
        times = [np.array(side.times.get(kernel, []), np.float64) for side in sides]
        before, after = (_Units(ns, np.ones_like(ns), np.zeros(len(ns), np.int64)) for ns in times)
        kernels.append(_change(kernel, WHOLE, "launch", before, after, options, rng))
    regions.sort(key=lambda row: -abs(_total(row.b_mean_ns, row.b_count) - _total(row.a_mean_ns, row.a_count)))
    recorded = info(a), info(b)
    return Comparison(tuple(kernels), tuple(regions), _doubts(a, b, recorded), _overall(kernels, regions), recorded)


@dataclass(frozen=True, eq=False)
class _Units:
    """Total ns and count of each unit, and its stratum."""

    total: Float
    count: Float
    stratum: Int64

    @property
    def mean(self) -> float:
        """Mean of a span; NaN without spans."""
        return float(self.total.sum() / self.count.sum()) if len(self.count) else float("nan")


@dataclass(frozen=True)
class _Side:
    """One recording: its rows of warp_regions() by (kernel, region), launch times by kernel."""

    trace: TraceData
    found: WarpRegions
    rows: dict[tuple[str, str], Int64]
    times: dict[str, list[float]]

    @staticmethod
    def of(trace: TraceData) -> _Side:
        found = warp_regions(trace)
        # variants of a kernel share a name
        rows = grouped(((trace.kernels[at], region), part) for at, region, part in found.by_region(trace))
        times = grouped((one.kernel, one.time_ns) for one in waves(trace))
        return _Side(trace, found, {key: np.concatenate(parts) for key, parts in rows.items()}, times)

    def units(self, kernel: str, region: str, unit: str) -> _Units:
        """Every unit with the region. Warps are drawn among those of one warp number, because warps may have roles."""
        rows = self.rows.get((kernel, region), np.zeros(0, np.int64))
        track, warps = self.found.track[rows], self.trace.warps
        of = {"launch": warps.launch, "block": warps.block_key}.get(unit)
        _, index = np.unique(track if of is None else of[track], return_inverse=True)
        index = index.ravel()
        total = np.bincount(index, weights=self.found.total[rows] * warps.tick_ns[track]).astype(np.float64)
        count = np.bincount(index, weights=self.found.count[rows]).astype(np.float64)
        stratum = np.zeros(len(total), np.int64)
        if of is None:
            stratum[index] = warps.warp[track]
            if np.unique(stratum, return_counts=True)[1].min(initial=2) < _LEAST_UNITS:
                stratum[:] = 0  # from a single lane nothing can be drawn
        return _Units(total, count, stratum)


def _total(mean_ns: float, count: int) -> float:
    return mean_ns * count if count else 0.0


def _unit(sides: tuple[_Side, _Side], kernel: str) -> str:
    """The largest unit of which both recordings have enough."""
    if all(len(side.times.get(kernel, ())) >= _LEAST_LAUNCHES for side in sides):
        return "launch"
    blocks = []
    for side in sides:
        names = np.array([name == kernel for name in side.trace.kernels], bool)
        mine = names[side.trace.warps.kernel]
        blocks.append(count_distinct(side.trace.warps.block_key[mine]))
    return "block" if min(blocks) >= _LEAST_LAUNCHES else "warp"


def _change(
    kernel: str, region: str, unit: str, a: _Units, b: _Units, options: Options,
    rng: np.random.Generator,
) -> Change:  # fmt: skip
    counts = int(a.count.sum()), int(b.count.sum())
    mean_a, mean_b = a.mean, b.mean
    change = (mean_b - mean_a) / mean_a if mean_a > 0 else float("nan")
    low = high = float("nan")
    verdict: Verdict = "unsure"
    if not counts[0] or not counts[1]:
        verdict = "gone" if counts[0] else "new"
    if min(len(a.total), len(b.total)) >= _LEAST_UNITS and mean_a > 0:
        ours, theirs = _means(b, options.draws, rng), _means(a, options.draws, rng)
        edge = (1 - options.level) / 2
        if theirs.all():  # units that last no tick may be all that is drawn: nothing is a change of that
            low, high = np.quantile(ours / theirs - 1, (edge, 1 - edge)).tolist()
            verdict = _judged(change, low, high, options.least)
    if mean_a == mean_b:
        verdict, change = "same", 0.0
    return Change(kernel, region, verdict, *counts, mean_a, mean_b, change, low, high, unit, len(a.total), len(b.total))


def _judged(change: float, low: float, high: float, least: float) -> Verdict:
    if -least < low and high < least:
        return "same"
    if low > 0 and change >= least:
        return "slower"
    if high < 0 and change <= -least:
        return "faster"
    return "same" if abs(change) < least and (low > 0 or high < 0) else "unsure"


def _means(units: _Units, draws: int, rng: np.random.Generator) -> Float:
    """(draws,) means of units, or of groups of many units, drawn with replacement, per stratum as many as it has."""
    total, count = np.zeros(draws), np.zeros(draws)
    for stratum in np.unique(units.stratum):
        mine = np.flatnonzero(units.stratum == stratum)
        times, counts = units.total[mine], units.count[mine]
        if len(mine) > _MOST_UNITS:
            group = rng.permutation(len(mine)) % _MOST_UNITS
            times, counts = (np.bincount(group, weights=column).astype(np.float64) for column in (times, counts))
        step = max(1, _MOST_WEIGHTS // len(times))
        for first in range(0, draws, step):
            part = slice(first, min(first + step, draws))
            drawn = rng.multinomial(len(times), np.full(len(times), 1 / len(times)), size=part.stop - first)
            total[part] += drawn @ times
            count[part] += drawn @ counts
    return total / count


def _overall(kernels: list[Change], regions: list[Change]) -> Verdict:
    """The verdict on the kernels' times if there are several launches of each, else on the regions."""
    timed = kernels if all(min(row.a_units, row.b_units) >= _LEAST_UNITS for row in kernels) else []
    found: set[Verdict] = {row.verdict for row in (timed or regions)}
    changed = found & {"slower", "faster"}
    if len(changed) == 1:
        return changed.pop()
    return "same" if found == {"same"} else "unsure"


def _doubts(a: TraceData, b: TraceData, recorded: tuple[Info, Info]) -> tuple[str, ...]:
    """Reasons why a difference may come from the recordings."""
    found_problems = [f"{name}: {problem.text}" for name, trace in (("a", a), ("b", b)) for problem in trace.problems]
    found_problems += [
        f"{name}: {one.blocks_text}; kernel times are those of these blocks"
        for name, one in zip("ab", recorded, strict=True)
        if one.partial
    ]
    devices = [one.device_text for one in recorded]
    if devices[0] != devices[1]:
        found_problems.append(f"times of different devices: {devices[0]} in a and {devices[1]} in b")
    for kernel in sorted({*a.kernels} & {*b.kernels}):
        grids = [{launch.grid for launch in trace.launches if launch.kernel == kernel} for trace in (a, b)]
        if grids[0] != grids[1]:
            shown = [", ".join(map(str, sorted(grid)[:3])) for grid in grids]
            found_problems.append(f"{kernel}: launched with different grids, {shown[0]} in a and {shown[1]} in b")
        counts = [_warps_per_block(trace, kernel) for trace in (a, b)]
        if counts[0] != counts[1]:
            found_problems.append(
                f"{kernel}: different warps recorded, {counts[0]} of a block in a and {counts[1]} in b"
            )
    return tuple(found_problems)


def _warps_per_block(trace: TraceData, kernel: str) -> int:
    mine = np.array([name == kernel for name in trace.kernels], bool)[trace.warps.kernel]
    return len(np.unique(trace.warps.warp[mine].astype(np.int64) * 32 + trace.warps.lane[mine]))
