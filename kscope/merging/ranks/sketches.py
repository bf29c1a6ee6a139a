"""Distributions of durations in a few kB per rank: a DDSketch (package `ddsketch`) for each kernel, region and role.
Quantiles are within 1 % of the value, and sketches of ranks add up exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ...analysis.roles import roles
from ...errors import FormatError, UsageError
from ...tracedata.data import TraceData
from ...tracedata.kernel_names import kernel_names
from ...util.arrays import Int64
from ...util.json_values import clean, dump_json
from ...util.packages import needed

FILE, SCHEMA = "sketches.jsonl", "kscope.sketch"
ACCURACY = 0.01
_MOST_BIN = 1 << 20
Key = tuple[str, str, str]
"""Kernel, region, role."""


@dataclass(frozen=True, eq=False)
class Sketch:
    """The durations of a region in the warps of a role.

    Attributes:
        key: kernel, region and role.
        bins: numbers of the sketch's bins.
        counts: durations in each.
    """

    key: Key
    bins: Int64
    counts: Int64


@dataclass(frozen=True)
class Spread:
    """A region of all ranks.

    Attributes:
        kernel, region, role: whose durations.
        ranks: number of ranks that have it.
        count: durations.
        p50_ns, p90_ns, p99_ns: of all ranks together, within 1 %.
        slowest: the rank with the largest median.
        slowest_ns: its median.
        times: that, divided by the median rank's median.
    """

    kernel: str
    region: str
    role: str
    ranks: int
    count: int
    p50_ns: float
    p90_ns: float
    p99_ns: float
    slowest: int
    slowest_ns: float
    times: float


def of_trace(trace: TraceData) -> list[Sketch]:
    """The sketches of a recording; spans of duration 0 are in the lowest bin.

    Raises:
        MissingError: ddsketch is not installed.
    """
    mapping = empty()._mapping
    spans = np.flatnonzero(trace.is_span)
    by_role, names, kernels = roles(trace), trace.region_names(), [clean(one) for one in kernel_names(trace)]
    track = trace.track[spans]
    exact = np.log(np.maximum(trace.dur_ns[spans], 1e-3)) / np.log(mapping.gamma)
    bins = np.ceil(exact).astype(np.int64) + _MOST_BIN
    shape = len(kernels), max(1, len(names)), max(1, len(by_role.names)), 2 * _MOST_BIN
    place = trace.warps.kernel[track], trace.region[spans], by_role.code[track], bins
    cells, counts = np.unique(np.ravel_multi_index(place, shape), return_counts=True)
    gathered = defaultdict[Key, dict[int, int]](dict)
    rows = np.stack(np.unravel_index(cells, shape), axis=1)
    for (kernel, region, role, number), count in zip(rows.tolist(), counts.tolist(), strict=True):
        own = gathered[kernels[kernel], clean(str(names[region])), clean(by_role.names[role])]
        own[number - _MOST_BIN] = own.get(number - _MOST_BIN, 0) + count
    return [
        Sketch(key, np.array(sorted(own), np.int64), np.array([own[one] for one in sorted(own)], np.int64))
        for key, own in gathered.items()
    ]


def write(sketches: Iterable[Sketch], rank: int) -> bytes:
    """A rank's sketches as a line of JSON. A file has one line for each rank."""
    rows = [[*one.key, one.bins.tolist(), one.counts.tolist()] for one in sketches]
    return dump_json({"schema": SCHEMA, "version": 1, "rank": rank, "accuracy": ACCURACY, "sketches": rows}) + b"\n"


def read(file: Path) -> Iterator[tuple[int, list[Sketch]]]:
    """Inverse of write(): rank and sketches of each line; one line is in memory at a time.

    Raises:
        FormatError: no such file.
    """
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield _rank(line)
            except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, OverflowError) as error:
                text = f"{file}: line {number} is not what kscope run --sketch writes, or damaged ({error})"
                raise FormatError(text) from None


def _rank(line: bytes) -> tuple[int, list[Sketch]]:
    found = orjson.loads(line)
    if found["schema"] != SCHEMA or found["version"] != 1 or found["accuracy"] != ACCURACY:
        raise ValueError("another schema")
    sketches = []
    for kernel, region, role, bins, counts in found["sketches"]:
        numbers, sizes = np.array(bins, np.int64), np.array(counts, np.int64)
        aligned = numbers.shape == sizes.shape and numbers.ndim == 1
        if not aligned or (sizes <= 0).any() or (np.abs(numbers) > _MOST_BIN).any():
            raise ValueError("its bins")
        sketches.append(Sketch((str(kernel), str(region), str(role)), numbers, sizes))
    return int(found["rank"]), sketches


def files(folder: Path) -> list[Path]:
    """The sketches of a job.

    Raises:
        UsageError: there are none.
    """
    found = sorted(folder.rglob(FILE))
    if not found:
        raise UsageError(
            f"{folder}: no {FILE}; record with torchrun ... -m kscope run --ranks {folder} --sketch train.py"
        )
    return found


def spreads(paths: Sequence[Path]) -> tuple[Spread, ...]:
    """Each kernel, region and role of all ranks, the one with the most time first; one rank is in memory at a time.

    Raises:
        FormatError: a file has no sketches.
        MissingError: ddsketch is not installed.
    """
    merged, medians = dict[Key, Any](), defaultdict[Key, dict[int, float]](dict)
    for rank, sketches in chain.from_iterable(read(path) for path in paths):
        for one in sketches:
            own = _sketch(one)
            medians[one.key][rank] = float(own.get_quantile_value(0.5))
            if one.key in merged:
                merged[one.key].merge(own)
            else:
                merged[one.key] = own
    rows = []
    for key, whole in merged.items():
        of_rank = medians[key]
        slowest = max(of_rank, key=lambda rank: (of_rank[rank], -rank))
        p50, p90, p99 = (float(whole.get_quantile_value(part)) for part in (0.5, 0.9, 0.99))
        usual = sorted(of_rank.values())[(len(of_rank) - 1) // 2]  # of two ranks the other one's
        ratio = of_rank[slowest] / usual if usual else float("nan")
        spread = Spread(*key, len(of_rank), int(whole.count), p50, p90, p99, slowest, of_rank[slowest], ratio)
        rows.append((float(whole.sum), spread))
    return tuple(spread for _, spread in sorted(rows, key=lambda row: -row[0]))


def _sketch(found: Sketch) -> Any:
    made = empty()
    for number, count in zip(found.bins.tolist(), found.counts.tolist(), strict=True):
        made.add(made._mapping.value(number), count)
    return made


def empty() -> Any:
    """A sketch without durations. Raises MissingError if ddsketch is not installed."""
    return needed("ddsketch", "sketches need the package ddsketch", "sketch").DDSketch(ACCURACY)
