"""Distributions of durations: one histogram per kernel and region, on a logarithmic axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import UsageError
from ..tracedata.data import TraceData
from ..tracedata.kernel_names import kernel_names
from ..util.arrays import Float, Int64
from .warp_regions import warp_regions


@dataclass(frozen=True, eq=False)
class Histogram:
    """The durations of one kernel and region.

    Attributes:
        kernel, region: their names.
        edges_ns: (bins + 1,) float64, ascending in equal ratios from the shortest to the longest span.
        counts: (bins,) int64, spans of known duration; spans of 0 ns are in the first bin.
    """

    kernel: str
    region: str
    edges_ns: Float
    counts: Int64


def histograms(trace: TraceData, bins: int = 64) -> tuple[Histogram, ...]:
    """One histogram per kernel and region with spans, in order of kernel and name.

    Raises:
        UsageError: bins < 1.
    """
    if bins < 1:
        raise UsageError(f"histograms(bins={bins}): expected 1 or more")
    found = warp_regions(trace)
    histograms_found, kernels = [], kernel_names(trace)
    for kernel, region, mine in found.by_region(trace):
        parts = zip(found.offset[mine].tolist(), found.count[mine].tolist(), strict=True)
        values = np.concatenate([found.values[at : at + count] for at, count in parts])
        edges = _edges(values, bins)
        counts = np.histogram(np.maximum(values, edges[0]), edges)[0].astype(np.int64)
        histograms_found.append(Histogram(kernels[kernel], region, edges, counts))
    return tuple(histograms_found)


def _edges(values: Float, bins: int) -> Float:
    """Equal ratios between the shortest positive value and the longest, which the last edge includes."""
    positive = values[values > 0]
    least = float(positive.min()) if len(positive) else 0.5
    most = max(float(values.max()), least * 1.001)
    edges = np.geomspace(least, most, bins + 1)
    edges[0], edges[-1] = least, most
    return edges
