"""Time by kernel and region, optionally grouped by SM, warp, block and so on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ..capture.layout import Kind
from ..tracedata import tracks
from ..tracedata.data import TraceData
from ..tracedata.info import info
from ..tracedata.kernel_names import kernel_names
from ..util.json_values import clean
from ..util.parallel import map_ahead
from .groups import Groups, group, label, split_keys
from .imbalance import ACROSS, Members, Worst, describe, members, worst
from .quantiles import quantiles
from .roles import Named
from .row_sums import RowSums, row_sums
from .summary_data import PointStats, RegionStats
from .summary_tables import Summary
from .wall import wall_ns
from .warp_regions import SPANS, WarpRegions, warp_regions
from .warp_stats import WarpStats, notes, warp_stats

_NAN = float("nan")


def summarize(trace: TraceData, by: str | Iterable[str] = (), roles: Named | None = None) -> Summary:
    """The summary of a trace by kernel and region. 10 million records take one to two seconds on two cores.

    Args:
        trace: the trace.
        by: more keys of groups.KEYS and CALL_KEYS: "sm", or "launch,sm". With "track" each user track counts as a
            warp; regions on no track have the key "-".
        roles: warp numbers by name, for `by="role"`; without, as kernels name them, or inferred.

    Raises:
        UsageError: an unknown key.
    """
    by = split_keys(by)
    spread, track, row = tracks.spread(trace)  # spans are inside of what is on their track
    found = warp_regions(spread)
    apart = spread is trace or "track" in by
    if not apart:
        whole = warp_regions(trace)
        found = replace(
            found, track=row[found.track], covered=whole.covered, quiet=whole.quiet, last_end=whole.last_end
        )
    shown = spread if apart else trace
    groups = group(shown, by, roles, track)
    lives = warp_stats(shown, groups, found)
    regions = _regions(shown, groups, found, lives)
    points = _points(trace) if int(found.count.sum() + found.unknown.sum()) < len(trace) else ()
    remarks = notes(trace, replace(found, track=row[found.track]) if shown is spread else found)
    return Summary(regions, points, trace.problems, remarks, lives, groups.by, trace.tick_ns, info(trace))


def _regions(
    trace: TraceData, groups: Groups, found: WarpRegions, lives: tuple[WarpStats, ...]
) -> tuple[RegionStats, ...]:
    names, kernels = found.names, kernel_names(trace)
    sums = row_sums(trace, found, groups.code)
    rows = len(sums.code)
    spread = quantiles(found.values, sums.row, rows, found.offset, found.count)
    wall = wall_ns(trace, found, groups.code, sums.code)
    imbalances = _imbalances(trace, groups, found, sums)
    issued = _issued(trace)
    alive = {id_: one.alive_ns for id_, one in enumerate(lives)}
    wheres = {one.name: clean(one.where) for one in reversed(trace.regions) if one.where}  # the first of a name
    rows_found: list[RegionStats] = []
    for index, code in enumerate(sums.code.tolist()):
        number, name = divmod(code, len(names))
        kernel = kernels[int(groups.kernel[number])]
        key = groups.keys[number]
        known, total = int(sums.count[index]), float(sums.total_ns[index])
        least, p50, p90, p99, greatest = spread[index].tolist()
        scores, member = imbalances[index]
        life = alive[number]
        rows_found.append(RegionStats(
            kernel, names[name], key, known, total, float(wall[index]),
            share=total / life if life > 0 else _NAN,
            self_ns=float(sums.own_ns[index]), mean_ns=total / known if known else _NAN,
            p50_ns=p50, p90_ns=p90, p99_ns=p99, min_ns=least, max_ns=greatest,
            imbalance=max([1.0, *(one for one in scores.values() if one == one)]) if known else _NAN, worst=member,
            first_ns=float(sums.first[index]) if known else _NAN,
            last_ns=float(sums.last[index]) if known else _NAN,
            idle_ns=float(sums.idle_ns[index]), unknown=int(sums.unknown[index]), under_tick=int(sums.under[index]),
            ends_at_issue_of=issued.get(names[name]),
            where=wheres.get(names[name], ""),
            **{f"{across}_imbalance": one for across, one in scores.items() if known},
        ))  # fmt: skip
    order = {
        (kernels[int(of)], key): place for place, (of, key) in enumerate(zip(groups.kernel, groups.keys, strict=True))
    }
    rows_found.sort(key=lambda one: (one.kernel, order[one.kernel, one.key], -one.warp_time_ns, one.region))
    return tuple(rows_found)


def _issued(trace: TraceData) -> dict[str, str | None]:
    """RegionStats.ends_at_issue_of by name: tracks of one name must agree that there is one."""
    found: dict[str, str | None] = {}
    for region in trace.regions:
        if region.kind in SPANS:
            other = found.setdefault(region.name, region.ends_at_issue_of)
            found[region.name] = other and region.ends_at_issue_of
    return found


def _imbalances(
    trace: TraceData, groups: Groups, found: WarpRegions, sums: RowSums
) -> list[tuple[dict[str, float], str]]:
    """(scores by member kind, text about the worst) of each row; kinds that the rows already separate are left out."""
    rows, row, track, ns = len(sums.code), sums.row, found.track, sums.total
    if not found.count.all():
        used = np.flatnonzero(found.count)
        row, track, ns = row[used], track[used], ns[used]
    if not len(row):
        return [({}, "")] * rows
    scores, worst_of = [dict[str, float]() for _ in range(rows)], [(1.0, "")] * rows

    def work(across: str) -> tuple[str, Members, Worst]:
        kind = members(trace, across)
        return across, kind, worst(row, rows, kind.code, track, ns)

    for across, kind, scored in map_ahead(work, [across for across in ACROSS if across not in groups.by]):
        for index, score in enumerate(scored.score.tolist()):
            scores[index][across] = score
            if score > worst_of[index][0]:
                worst_of[index] = score, describe(kind.label(int(scored.code[index])), score)
    return [(by_member, sentence) for by_member, (_, sentence) in zip(scores, worst_of, strict=True)]


def _points(trace: TraceData) -> tuple[PointStats, ...]:
    kinds = np.array([region.kind for region in trace.regions], np.int64)
    spans = np.isin(kinds, SPANS)
    at = np.flatnonzero(~spans[trace.region])
    if not len(at):
        return ()
    points = trace.take(at)
    names, index = np.unique(trace.region_names(), return_inverse=True)
    name = index[points.region]
    code = points.kernel * len(names) + name
    order = np.argsort(code, kind="stable")
    value, kind = points.value[order], points.kind[order]
    edges = np.flatnonzero(np.concatenate([[True], np.diff(code[order]) != 0]))
    found, kernels = [], kernel_names(trace)
    for a, b in zip(edges.tolist(), [*edges[1:].tolist(), len(order)], strict=True):
        kernel, number = divmod(int(code[order[a]]), len(names))
        word = "counter" if kind[a] == Kind.COUNTER else "instant"
        with_value = value[a:b][~np.isnan(value[a:b])]
        with np.errstate(invalid="ignore"):  # inf and -inf have no mean
            three = (with_value.mean(), with_value.min(), with_value.max()) if len(with_value) else (np.nan,) * 3
        found.append(PointStats(kernels[kernel], names[number], word, b - a, *map(float, three)))
    return tuple(found)


__all__ = ["PointStats", "RegionStats", "Summary", "WarpStats", "label", "summarize"]
