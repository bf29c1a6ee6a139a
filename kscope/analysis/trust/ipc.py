"""Instructions per cycle of every warp and region: CUTracer's counts over kscope's (or Proton's) cycles."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...errors import UsageError
from ...tracedata.data import TraceData
from ...util.grouping import grouped
from ...util.text import counted, number_ranges
from .cutracer import Counts, Event, LogLaunch

COLUMNS = (
    "core", "cta", "local_warp_id", "global_warp_id", "region_id", "name", "category", "cycles", "timestamp_ns",
    "total_instruction_count", "ipc",
)  # fmt: skip
CHROME_COLUMNS = ("name", "category", "cycles", "timestamp_ns", "core", "cta", "local_warp_id")
HIST_COLUMNS = ("global_warp_id", "region_id", "total_instruction_count")
CAPTURE_ANCHORS, CHROME_ANCHORS = (1, 1), (0, 0)
_SHOWN = 10
_LEFT_OUT = _CROOKED, _POINTS, _SHARED, _UNKNOWN, _FULL = (
    "regions that nest or cross: CUTracer cannot distinguish them",
    "instants or counters between regions: they read the clock once, and ordinals shift",
    "regions that begin with the clock read that ends another: joining needs two clock reads per region",
    "unknown durations",
    "records that came after their warp's buffer was full: to join them, use fill='ring' or more records",
)
"""Reasons why the regions of a warp of a capture are left out."""
_ODD = (
    "one clock read of each anchor is an S2UR in this build, which CUTracer does not count: its regions are the gaps"
    " between kscope's, and nothing can be joined (nvdisasm shows it)"
)


@dataclass(frozen=True)
class Row:
    """One region of one warp, in the order of COLUMNS; None if the histogram has no count, or if cycles are 0."""

    core: int
    cta: int
    local_warp_id: int
    global_warp_id: int
    region_id: int
    name: str
    category: str
    cycles: float
    timestamp_ns: float
    total_instruction_count: int | None
    ipc: float | None


@dataclass(frozen=True)
class RegionIpc:
    """All rows of a region name with a known ipc."""

    name: str
    rows: int
    instructions: int
    cycles: float
    mean: float
    median: float
    whole: float


@dataclass(frozen=True)
class Joined:
    """rows: by warp and region. regions: by name. mismatches: what could not be joined; empty if everything could."""

    rows: tuple[Row, ...]
    regions: tuple[RegionIpc, ...]
    mismatches: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """Regions of one launch.

    Attributes:
        events: by warp of the grid, (ordinal, event) in order of time.
        known: warps with records.
        anchors: CUTracer pairs before the first region and after the last.
        mismatches: reasons why regions were left out.
    """

    events: dict[int, list[tuple[int, Event]]]
    known: frozenset[int]
    anchors: tuple[int, int]
    mismatches: tuple[str, ...] = ()


def of_events(events: Iterable[Event], launch: LogLaunch, anchors: tuple[int, int] = CHROME_ANCHORS) -> Source:
    """Regions of a Chrome trace, numbered in order of time on each warp."""
    warps = grouped((event.cta * launch.warps_per_block + event.warp, event) for event in events)
    found, nested = dict[int, list[tuple[int, Event]]](), list[int]()
    for warp, mine in warps.items():
        mine.sort(key=lambda event: event.timestamp_ns)
        if any(b.timestamp_ns < a.timestamp_ns + a.cycles / _FASTEST for a, b in pairwise(mine)):
            nested.append(warp)
            continue
        found[warp] = [(number + anchors[0], event) for number, event in enumerate(mine)]
    return Source(found, frozenset(warps), anchors, _notes(nested, "regions overlap: ordinals are ambiguous"))


_FASTEST = 10.0
"""Cycles per ns, above any GPU's clock: Proton traces have durations in cycles and times in ns, so events nest only if
they overlap even at this rate."""


def of_trace(trace: TraceData, anchors: tuple[int, int] = CAPTURE_ANCHORS) -> Source:
    """Regions of one launch of a capture.

    Raises:
        UsageError: several launches, or recorded with AllThreads.
    """
    rows = np.unique(trace.track)
    warps = trace.warps
    launches = np.unique(warps.launch[rows])
    if len(launches) != 1:
        raise UsageError(f"{len(launches)} launches: a histogram covers one launch; use --kernel and --launch")
    if len(np.unique(warps.lane[rows])) > 1:
        raise UsageError("every lane recorded: CUTracer counts warps; record with strategy=Elected()")
    threads = warps.threads[rows[0]]
    per_block = -(-int(threads.prod()) // 32)
    found, known, lost = dict[int, list[tuple[int, Event]]](), set[int](), 0
    left_out = defaultdict[str, list[int]](list)
    first_kept = any(problem.kind == "refused" for problem in trace.problems)  # the newest are missing, not the oldest
    cuts = np.searchsorted(trace.track, [*rows, rows[-1] + 1])
    names = trace.region_names()
    for row, a, b in zip(rows.tolist(), cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        warp = int(warps.block[row]) * per_block + int(warps.warp[row])
        known.add(warp)
        start, took = trace.start_ticks[a:b], trace.dur_cycles[a:b]
        if not trace.is_span[a:b].all():
            left_out[_UNKNOWN if (took < 0).any() else _POINTS].append(warp)
            continue
        if (start[1:] < (start + took)[:-1]).any():
            left_out[_CROOKED].append(warp)
            continue
        if not warps.timer[row] and (start[1:] == (start + took)[:-1]).any():
            left_out[_SHARED].append(warp)
            continue
        before = int(warps.written[row] - warps.records[row])
        if before and first_kept:
            left_out[_FULL].append(warp)
            continue
        lost += before
        place = int(warps.sm[row]), int(warps.block[row]), int(warps.warp[row])
        kernel = trace.kernels[int(warps.kernel[row])]
        columns = names[trace.region[a:b]].tolist(), took.tolist(), trace.start_ns[a:b].tolist()
        found[warp] = [
            (anchors[0] + before + number, Event(*place, name, kernel, float(cycles), ns))
            for number, (name, cycles, ns) in enumerate(zip(*columns, strict=True))
        ]
    remarks = [remark for why in _LEFT_OUT for remark in _notes(left_out[why], why)]
    if lost:
        remarks.append(f"{counted(lost, 'record')} overwritten: their counts have no region")
    if trace.filtered and _thinned(trace, rows):
        remarks.append("the capture was filtered: ordinals count only remaining regions")
    return Source(found, frozenset(known), anchors, tuple(remarks))


def join(source: Source, counts: Counts) -> Joined:
    """Join instructions by (warp, ordinal).

    CUTracer counts instructions between a warp's clock reads: the k-th pair is its region k. kscope's anchors are pairs
    too, one before the first region and one after the last, so region k of a capture is k + 1 in CUTracer. This holds
    for regions that do not nest, without points between them, and with a clock read at every begin; other regions are
    left out and reported. Regions or counts on one side only are mismatches; so are warps with different numbers of
    regions, because their ordinals do not correspond.
    """
    have = Counter(warp for warp, _ in counts)
    mismatches = list(source.mismatches)
    mismatches += _notes(sorted(source.known - have.keys()), "no counts in the histogram")
    mismatches += _notes(sorted(have.keys() - source.known), "counts, and no record")
    off = [
        warp for warp, events in source.events.items()
        if warp in have and events and have[warp] != events[-1][0] + 1 + source.anchors[1]
    ]  # fmt: skip
    before, after = source.anchors
    if off and all(have[warp] == source.events[warp][-1][0] + 1 + after - before for warp in off) and before:
        mismatches.append(_ODD)
    mismatches += _notes(
        sorted(off), f"the number of regions differs from the recorded ones plus {before + after} anchors"
    )
    rows, crooked = [], set(off)
    for warp, events in sorted(source.events.items()):
        for ordinal, event in events:
            count = None if warp in crooked else counts.get((warp, ordinal))
            ipc = count / event.cycles if count is not None and count > 0 and event.cycles > 0 else None
            rows.append(Row(
                event.core, event.cta, event.warp, warp, ordinal, event.name, event.category, event.cycles,
                event.timestamp_ns, count, ipc,
            ))  # fmt: skip
    return Joined(tuple(rows), _by_name(rows), tuple(mismatches))


def select_launch(launches: Sequence[LogLaunch], kernel_hash: int | None) -> LogLaunch:
    """The launch of the log with a kernel hash; without one, the log's only kernel.

    Raises:
        UsageError: no such launch, or several kernels or block sizes; the message lists them.
    """
    found = [one for one in launches if kernel_hash is None or one.hash == kernel_hash]
    kinds = {(one.hash, one.block) for one in found}
    if len(kinds) == 1:
        return found[0]
    known = (
        ", ".join(sorted({f"0x{one.hash:x}" if one.hash is not None else "(no hash)" for one in launches})) or "none"
    )
    if not found and kernel_hash is not None:
        raise UsageError(f"no launch with kernel hash 0x{kernel_hash:x} in the log, which has {known}")
    if not found:
        raise UsageError("no LAUNCH line with grid size and block size in the log")
    raise UsageError(f"several kernels or block sizes in the log: select one with --kernel-hash; it has {known}")


def _thinned(trace: TraceData, rows: np.ndarray) -> bool:
    """True if the filter removed records of the remaining warps."""
    return bool((np.bincount(trace.track, minlength=len(trace.warps))[rows] != trace.warps.records[rows]).any())


def _by_name(rows: Iterable[Row]) -> tuple[RegionIpc, ...]:
    names = grouped((row.name, row) for row in rows if row.ipc is not None)
    found = []
    for name, mine in sorted(names.items()):
        ratios = [row.ipc for row in mine if row.ipc is not None]
        instructions, cycles = sum(row.total_instruction_count or 0 for row in mine), sum(row.cycles for row in mine)
        mean, median = statistics.fmean(ratios), statistics.median(ratios)
        found.append(RegionIpc(name, len(mine), instructions, cycles, mean, median, instructions / cycles))
    return tuple(found)


def _notes(warps: Sequence[int], why: str) -> tuple[str, ...]:
    if not warps:
        return ()
    more = f" and {len(warps) - _SHOWN:,} more" if len(warps) > _SHOWN else ""
    return (f"{counted(len(warps), 'warp')} ({number_ranges(sorted(warps)[:_SHOWN])}{more}): {why}",)
