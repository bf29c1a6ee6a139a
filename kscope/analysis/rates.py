"""Bandwidth and compute rate of each region, and its share of the GPU's peak.

    rate = amounts of all executions / mean over SMs of the time in which any of their warps is in the region

Amounts are those that marks declare or a reader gives, for a block with all its warps; else those of the machine code,
for each recording warp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..capture.samples import CodeWork
from ..instrument.peaks import Peaks
from ..marks.strategies import records_some_warps
from ..marks.work import VALUE, Amount, Work, parse
from ..tracedata.data import TraceData
from ..tracedata.kernel_names import kernel_names, of_kernels
from ..util.arrays import Bools, Int64
from ..util.runs import added, group_equal, most_of, order_by
from .display import Shown
from .samples.stalls import SELECTIVE

GIVEN, DECLARED, CODE = "given", "declared", "code"


@dataclass(frozen=True)
class Rate:
    """A region of a kernel.

    Attributes:
        kernel, region: their names.
        executions: of recording warps.
        busy_ns: mean over SMs of the time in which a warp is in the region.
        bytes: from and to global memory by all executions; NaN if unknown.
        flops: floating-point operations of all executions; NaN if unknown.
        bytes_from, flops_from: "given", "declared" or "code"; empty if unknown.
        most: True if amounts are upper limits, because instructions of the code have a predicate.
        bandwidth: bytes per ns: GB/s.
        speed: floating-point operations per ns: GFLOP/s.
        roof: the nearer limit, "memory" or "compute"; empty if unknown.
        part: the share of that limit that the region reaches; NaN if unknown.
        unknown: reason why an amount is unknown; empty if both are known, or do not come from the code.
        shared: bytes from and to shared memory by all executions, counted in the machine code; NaN if unknown.
        shared_bandwidth: these bytes per ns: GB/s.
    """

    kernel: str
    region: str
    executions: int
    busy_ns: float
    bytes: float
    flops: float
    bytes_from: str
    flops_from: str
    most: bool
    bandwidth: float
    speed: float
    roof: str
    part: float
    unknown: str
    shared: float = float("nan")
    shared_bandwidth: float = float("nan")

    @property
    def intensity(self) -> float:
        """Floating-point operations per byte; NaN if unknown."""
        return self.flops / self.bytes if self.bytes else float("nan")


@dataclass(frozen=True, repr=False)
class Rates(Shown):
    """Rates of regions; ``str()`` is the table for a terminal.

    Attributes:
        rows: by kernel, longest first.
        peaks: peak rates of the GPU; None without.
        problems: limits of the numbers.
    """

    rows: tuple[Rate, ...]
    peaks: Peaks | None
    problems: tuple[str, ...]


def rates(
    trace: TraceData, code: Mapping[tuple[int, str], CodeWork] | None = None,
    given: Mapping[str, Work] | None = None, peaks: Peaks | None = None,
) -> Rates:  # fmt: skip
    """The rates of every region.

    Args:
        trace: the recording.
        code: work of a warp's execution by kernel id and region; None to use the trace's samples.
        given: work of a block's execution by region, instead of declared amounts.
        peaks: of the GPU.
    """
    code = of_samples(trace) if code is None else code
    rows, problems = list[Rate](), list(_partial(trace))
    if peaks is not None and trace.recorded.gpus and all(one.name != peaks.gpu for one in trace.recorded.gpus):
        problems.append(f"the peaks are those of a {peaks.gpu}, and {trace.recorded.gpus[0].name} was recorded")
    at = np.flatnonzero(trace.is_span & _first_lanes(trace)[trace.track])
    names = trace.region_names()
    for kernel, (name, number) in enumerate(zip(kernel_names(trace), of_kernels(trace), strict=True)):
        mine = at[trace.kernel[at] == kernel]
        found = [
            _rate(
                trace, (name, str(region)), own, code.get((number, str(region))), (given or {}).get(str(region)), peaks
            )
            for region in sorted({str(one) for one in names[trace.region[mine]]})
            if len(own := mine[names[trace.region[mine]] == region])
        ]
        rows += sorted(found, key=lambda row: -row.busy_ns)
    return Rates(tuple(rows), peaks, tuple(problems))


def of_samples(trace: TraceData) -> dict[tuple[int, str], CodeWork]:
    """The work of regions in the machine code of the samples, by kernel id and region."""
    functions = trace.samples.functions if trace.samples else ()
    return {
        (function.kernel, region.name): region.work
        for function in functions
        if function.kernel is not None
        for region in function.regions
        if region.work is not None
    }


def _partial(trace: TraceData) -> Iterator[str]:
    selective = [name for name in SELECTIVE if trace.recorded.options.get(name) is not None]
    if selective or trace.filtered:
        why = f"{', '.join(selective)} selected" if selective else "filters left"
        yield f"{why} some warps only: rates are those of the shown part, while the rest of the GPU also worked"
    if any(map(records_some_warps, trace.recorded.strategies)):
        yield "some warps of a block record: amounts of the machine code are those of recording warps only"


def _first_lanes(trace: TraceData) -> Bools:
    """(w,) rows of Trace.warps of the first recording lane of each warp."""
    warps = trace.warps
    order = order_by(warps.launch, warps.block, warps.warp, warps.lane)
    first = np.zeros(len(warps), bool)
    if len(order):
        keys = np.array([warps.launch[order], warps.block[order], warps.warp[order]], np.int64)
        first[order] = np.concatenate([[True], (np.diff(keys) != 0).any(axis=0)])
    return first


def _rate(
    trace: TraceData, names: tuple[str, str], at: Int64, code: CodeWork | None, given: Work | None, peaks: Peaks | None
) -> Rate:
    found, sources = dict[str, float](), dict[str, str]()
    for kind in ("bytes", "flops"):
        found[kind], sources[kind] = _amount(trace, at, kind, code, given)
    used = [kind for kind in found if sources[kind] == CODE]
    busy, sms = _busy(trace, at)
    devices = max(1, len(np.unique(trace.warps.device[trace.track[at]])))
    bandwidth, speed = (found[kind] / devices / busy if busy else float("nan") for kind in ("bytes", "flops"))
    roof, part = _roof(bandwidth, speed, sms / devices, code, peaks)
    shared = float("nan") if code is None or code.unknown else float(code.shared) * len(at)
    return Rate(
        *names, len(at), busy, found["bytes"], found["flops"], sources["bytes"], sources["flops"],
        bool(used) and code is not None and code.most, bandwidth, speed, roof, part,
        code.unknown if code is not None and not all(sources.values()) else "",
        shared, shared / devices / busy if busy else float("nan"),
    )  # fmt: skip


def _amount(trace: TraceData, at: Int64, kind: str, code: CodeWork | None, given: Work | None) -> tuple[float, str]:
    """The sum over all executions, and its source."""
    if given is not None and (amount := getattr(given, kind)) is not None:
        return _of_blocks(trace, at, amount), GIVEN
    regions = np.unique(trace.region[at]).tolist()
    declared = {region: getattr(parse(trace.regions[region].work) or Work(), kind) for region in regions}
    if any(amount is not None for amount in declared.values()):
        parts = (
            _of_blocks(trace, at[trace.region[at] == region], amount)
            for region, amount in declared.items()
            if amount is not None
        )
        return sum(parts), DECLARED
    if code is not None and not code.unknown:
        return float(getattr(code, kind)) * len(at), CODE
    return float("nan"), ""


def _of_blocks(trace: TraceData, at: Int64, amount: Amount) -> float:
    """The sum over blocks: for each the warp with the most, because an amount is that of all warps of a block."""
    each = trace.value[at] if amount == VALUE else np.full(len(at), float(amount))
    track, of = np.unique(trace.track[at], return_inverse=True)
    of_warp = np.bincount(of, weights=np.nan_to_num(each))
    first, _, block = group_equal(trace.warps.block_key[track])
    return float(most_of(block, of_warp, len(first), 0.0).sum())


def _busy(trace: TraceData, at: Int64) -> tuple[float, int]:
    """Mean over SMs of the time in which a span is open, ns, and the number of SMs."""
    track = trace.track[at]
    sm = trace.warps.device[track].astype(np.int64) << 32 | trace.warps.sm[track]
    begin, end = trace.start_ns[at], trace.start_ns[at] + trace.dur_ns[at]
    order = np.lexsort((begin, sm))
    parts = np.split(order, np.flatnonzero(np.diff(sm[order])) + 1) if len(order) else []
    total = sum(float(added(begin[part], end[part]).sum()) for part in parts)
    return total / max(1, len(parts)), len(parts)


def _roof(bandwidth: float, speed: float, sms: float, code: CodeWork | None, peaks: Peaks | None) -> tuple[str, float]:
    """The limit of a region, and the share of it that the region reaches; with one known amount, that one's limit."""
    if peaks is None:
        return "", float("nan")
    used = min(1.0, sms / peaks.sms)
    matrix = peaks.matrix if code is None or code.matrix else 0.0
    parts = {"memory": bandwidth / (used * peaks.bandwidth), "compute": speed / (used * max(peaks.fma, matrix))}
    known = {roof: part for roof, part in parts.items() if part > 0}  # NaN is not
    if not known:
        return "", float("nan")
    roof = max(known, key=lambda one: known[one])
    return roof, known[roof]
