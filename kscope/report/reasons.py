"""Bars of stall reasons: each reason has one color on all pages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from ..analysis.samples.reasons import ISSUED
from ..analysis.samples.stalls import stalls
from ..tracedata.data import TraceData
from ..tracedata.kernel_names import kernel_names, of_kernels
from ..util.json_values import clean

_COLORS = (
    "#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#499894", "#d37295",
    "#86bcb6", "#8cd17d", "#79706e", "#f1ce63", "#a0cbe8", "#d4a6c8", "#b6992d", "#bab0ac",
)  # fmt: skip
_ISSUED_COLOR = "#59a14f"


def colors(rows: Iterable[Mapping[str, int]]) -> dict[str, str]:
    """A color for each reason, the most frequent first.

    Args:
        rows: samples by reason; issued ones have a separate color.
    """
    total = Counter[str]()
    for row in rows:
        total.update(row)
    order = sorted((name for name in total if name != ISSUED), key=lambda name: -total[name])
    return {ISSUED: _ISSUED_COLOR, **{name: _COLORS[at % len(_COLORS)] for at, name in enumerate(order)}}


def bars(trace: TraceData) -> dict[tuple[str, str], list[tuple[str, float, str]]]:
    """By kernel and region: each reason with its share of the region's samples and its color, the issued ones first."""
    if trace.samples is None:
        return {}
    names = dict(zip(of_kernels(trace), kernel_names(trace), strict=True))
    counts = defaultdict[tuple[str, str], Counter[str]](Counter)
    for number, function in enumerate(trace.samples.functions):
        if function.kernel not in names:
            continue
        for row in stalls(trace.samples.of([number])).rows:
            issued = {ISSUED: row.samples - sum(row.reasons.values())}
            counts[names[function.kernel], row.name].update(issued | row.reasons)
    color = colors(counts.values())
    return {
        key: [(clean(name), count / sum(own.values()), color[name]) for name, count in own.items() if count]
        for key, own in counts.items()
    }
