"""Turns a capture into a trace: decodes every device, numbers its launches, names its regions, and puts all on one
axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..capture.capture_data import CaptureData, DeviceCapture
from ..capture.counted_problems import note
from ..capture.model import ModuleMeta, Problem
from ..marks.wide_values import CODES
from ..tracedata.clock_curves import Curves
from ..tracedata.data import Launch, TraceData
from ..tracedata.recording_facts import Clock, Gpu, Reading, Recorded
from ..tracedata.region import Region
from ..tracedata.warps import Warps, last_ends
from ..util.arrays import Int64
from ..util.grouping import grouped
from ..util.parallel import each, filled, shares
from ..util.text import counted
from .axis import Axis, fit_axis, joined_curves
from .begin_end_spans import with_flights
from .columns import Records, decode_slabs, id_sample
from .ids import IdTable, Names
from .lane_joining import join
from .launch_lines import calls as calls_of
from .launches import Launches, number
from .lost_data import Lost, find_lost
from .slabs import Slabs, find
from .unfinished_warps import until_read
from .warp_roles import with_roles
from .wide_values import Halves, with_values

_SUBSET = ("block", "warp", "sm")


@dataclass(frozen=True)
class _Device:
    slabs: Slabs
    records: Records
    offset: int  # UNIX ns minus %globaltimer; 0 if it was not compared with the host's clock


def assemble(capture: CaptureData) -> TraceData:
    """The trace of a capture. Never raises on data."""
    found, wrong = [], list[Problem]()
    for device in capture.devices:
        slabs, doubts = find(device.lines, capture.epoch)
        found.append(slabs)
        wrong += _on(device, capture, doubts)
        if device.lost:
            text = f"{counted(device.lost, slabs.noun)} found the pool full and did not record: raise pool="
            wrong += _on(device, capture, [Problem("lost", text, device.lost)])
    modules, names = _recorded(capture.modules, found)
    problems = [*_of_recorded(capture, modules), *(one for module in modules for one in module.problems)]
    problems += [*names.problems, *wrong]
    samples = [id_sample(device, slabs) for device, slabs in zip(capture.devices, found, strict=True)]
    table = IdTable(names, np.concatenate([*samples, np.zeros(0, np.uint32)]))
    devices = []
    for device, slabs in zip(capture.devices, found, strict=True):
        records = decode_slabs(device, slabs, table)
        problems += _on(device, capture, [*_unfinished(slabs, capture.modules), *records.problems])
        devices.append(_Device(records.slabs, records, host_offset(device)))
    slabs = Slabs.joined([device.slabs for device in devices])
    sizes = [len(device.slabs) for device in devices]
    used = [device for device, size in zip(capture.devices, sizes, strict=True) if size]  # not an idle simulator
    owner = np.repeat(np.arange(len(devices)), sizes) if len(devices) > 1 else np.broadcast_to(np.int64(0), len(slabs))
    launches = number(slabs, owner, np.array([device.offset for device in devices], np.int64))
    regions, renumber = table.sorted_regions()
    first, _, kernel = slabs.kernels
    kernel_ids = slabs.header["kernel"][first]
    kernels = _kernel_names(kernel_ids.tolist(), capture.modules)
    lost = Lost() if _sampled(capture) else find_lost(capture, slabs, launches)
    problems += lost.problems or _whole(launches, capture)
    origin = min((_first_time(device) + device.offset for device in devices if len(device.slabs)), default=0)
    counts = _column([device.records.counts for device in devices], np.int64)
    start = _column([device.records.start for device in devices], np.int64)
    took = _column([device.records.duration for device in devices], np.int64)
    last, running = slabs.last_tick, np.flatnonzero(~slabs.finished)
    if len(running):
        last = last.copy()
        last[running] = last_ends(counts, start, took, slabs.first_tick)[running]
    axes, ends = [], np.cumsum([0, *sizes]).tolist()
    for device, data, mine in zip(capture.devices, devices, map(slice, ends, ends[1:]), strict=False):
        axis = fit_axis(data.slabs, launches.of[mine], last[mine], device, origin - data.offset, data.records.anchors)
        problems += _on(device, capture, axis.problems)
        if len(running):
            axis, last[mine] = until_read(data.slabs, last[mine], axis, device, origin - data.offset)
        axes.append(axis)
    region = _column([device.records.region for device in devices], np.uint16)
    region = region if renumber is None else renumber[region]
    known = {kernel.id for module in capture.modules for kernel in module.kernels}
    problems += _unknown(region, regions, len(set(kernel_ids.tolist()) - known))
    numbered = _launches(launches, kernel_ids, kernels, capture.devices, lost)
    calls, unknown = calls_of(capture, numbered)
    problems += unknown
    trace = TraceData(
        region=region,
        track=_tracks(counts),
        start_ticks=start,
        dur_cycles=took,
        bits=_column([device.records.value for device in devices], np.uint32),
        warps=_warps(slabs, owner, launches, kernel, axes, devices, last),
        regions=regions,
        types=_types(kernel_ids.tolist(), capture.modules, regions),
        kernels=kernels,
        launches=numbered,
        devices=tuple(device.ordinal for device in capture.devices),
        origin=origin,
        tick_ns=max((axis.tick for axis in axes), default=0),
        problems=tuple(problems),
        lost_launches=lost.launches,
        tuning_launches=capture.tuning_launches,
        recorded=_about(capture, modules, used),
        samples=capture.samples,
        calls=calls,
        curves=Curves.joined([axis.curves for axis in axes]),
    )
    trace = with_values(trace, Halves.joined([(one.records.halves, len(one.records.start)) for one in devices]))
    roles = {one.id: one.roles for module in capture.modules for one in module.kernels}
    joined = join(trace, launches.in_turn)
    return with_flights(with_roles(joined, [roles.get(number, ()) for number in kernel_ids.tolist()]))


def _about(capture: CaptureData, recorded: Sequence[ModuleMeta], used: Sequence[DeviceCapture]) -> Recorded:
    names = {device.name for device in used or capture.devices}
    clock: Clock = "host" if "interpreted" in names else "simulated" if "simulated" in names else "gpu"
    gpus = tuple(Gpu(one.ordinal, one.name, one.uuid, _readings(one)) for one in capture.devices)
    strategies = tuple(sorted({module.strategy for module in recorded}))
    return Recorded("kscope", clock, gpus, capture.host, capture.options, strategies, _placements(recorded))


def _placements(recorded: Iterable[ModuleMeta]) -> dict[str, str]:
    """Placement of each kernel's records: in the text or in machine code."""
    found: dict[str, set[str]] = {}
    for module in recorded:
        for kernel in module.kernels:
            found.setdefault(kernel.name, set()).add(module.placement)
    return {name: " and ".join(sorted(placements)) for name, placements in found.items()}


def _readings(device: DeviceCapture) -> tuple[Reading, ...]:
    offset, tick = host_offset(device), max(1, device.tick_ns)
    found = [Reading(one.kernel, one.first + offset + tick, one.last + offset) for one in device.readings]
    return tuple(sorted(found, key=lambda one: one.last_from))


def _recorded(modules: Iterable[ModuleMeta], found: Iterable[Slabs]) -> tuple[list[ModuleMeta], Names]:
    """The modules with a kernel that claimed a slab, each without problems of other kernels; and the names in them.

    A process lists every module that it has loaded, so some are not of this session.
    """
    modules, ids = list(modules), set[int]()
    for slabs in found:
        ids.update(slabs.header["kernel"][slabs.kernels[0]].tolist())
    kept = []
    for module in modules:
        others = {kernel.name for kernel in module.kernels if kernel.id not in ids}
        if any(kernel.id in ids for kernel in module.kernels):
            mine = tuple(problem for problem in module.problems if problem.kernel not in others)
            kept.append(replace(module, problems=mine))
    unknown = ids - {kernel.id for module in kept for kernel in module.kernels}
    return kept, Names(modules if unknown else kept)  # any module may name the records of a kernel without metadata


def _of_recorded(capture: CaptureData, recorded: Iterable[ModuleMeta]) -> list[Problem]:
    """The capture's problems without those of regions in modules that did not record."""
    kept = {kernel.name for module in recorded for kernel in module.kernels}
    others = {kernel.name for module in capture.modules for kernel in module.kernels} - kept
    return [one for one in capture.problems if not (one.region and one.kernel in others)]


def _unfinished(slabs: Slabs, modules: Iterable[ModuleMeta]) -> list[Problem]:
    ids, counts = np.unique(slabs.header["kernel"][~slabs.finished], return_counts=True)
    return [
        Problem(
            "unfinished",
            f"{counted(count, 'warp')} of {kernel} did not finish: running, hanging or killed when the data was read",
            count,
            kernel,
        )
        for kernel, count in zip(_kernel_names(ids.tolist(), modules), counts.tolist(), strict=True)
    ]


def _on(device: DeviceCapture, capture: CaptureData, problems: Iterable[Problem]) -> list[Problem]:
    """The problems, with their device if the capture has several."""
    if len(capture.devices) < 2:
        return list(problems)
    return [one.on_device(device.ordinal) for one in problems]


def _column(parts: list[npt.NDArray[np.generic]], dtype: type[np.generic]) -> npt.NDArray:  # type: ignore[type-arg]  # of that dtype
    return parts[0] if len(parts) == 1 else np.concatenate([*parts, np.zeros(0, dtype)])


def host_offset(device: DeviceCapture) -> int:
    """UNIX time minus %globaltimer in ns, from the comparison with the least uncertainty."""
    sync = min(device.syncs, key=lambda sync: sync.host_after - sync.host_before, default=None)
    offset = 0 if sync is None else (sync.host_before + sync.host_after) // 2 - sync.globaltimer
    return offset if abs(offset) < 1 << 62 else 0


def _first_time(device: _Device) -> int:
    return int(device.slabs.header["start_time"].view(np.int64).min())


def _kernel_names(ids: list[int], modules: Iterable[ModuleMeta]) -> tuple[str, ...]:
    names = {kernel.id: kernel.name for module in modules for kernel in module.kernels}
    return tuple(names.get(number, f"kernel {number:016x}") for number in ids)


def _types(ids: list[int], modules: Iterable[ModuleMeta], regions: tuple[Region, ...]) -> npt.NDArray[np.uint8]:
    """(kernels, regions) uint8: the code of the value type of a region in a kernel; u32 where it is unknown."""
    codes = np.full((max(1, len(ids)), len(regions)), CODES["u32"], np.uint8)
    rows = {number: row for row, number in enumerate(ids)}
    columns = grouped((region.token, column) for column, region in enumerate(regions))
    for module in modules:
        mine = [rows[kernel.id] for kernel in module.kernels if kernel.id in rows]
        for meta in module.regions if mine else ():
            if meta.type is not None:
                named = None if meta.kernel is None else module.kernels[meta.kernel].id
                about = mine if named is None else [rows[named]] if named in rows else []
                codes[np.ix_(about, columns.get(meta.name, []))] = CODES[meta.type]
    return codes


def _launches(
    launches: Launches, kernel_ids: npt.NDArray[np.uint64], kernels: tuple[str, ...],
    devices: tuple[DeviceCapture, ...], lost: Lost,
) -> tuple[Launch, ...]:  # fmt: skip
    kernel = np.searchsorted(kernel_ids, launches.kernel).tolist()
    columns = (launches.device, launches.grid_id, launches.replay, launches.grid)
    missing = lost.missing.tolist() or [0] * len(launches)
    rows = zip(kernel, *(column.tolist() for column in columns), missing, strict=True)
    return tuple(
        Launch(kernels[k], devices[d].ordinal, g, r, (x, y, z), int(kernel_ids[k]), absent)
        for k, d, g, r, (x, y, z), absent in rows
    )


def _sampled(capture: CaptureData) -> bool:
    return any(capture.options.get(name) not in (None, "", "all") for name in _SUBSET)


def _whole(launches: Launches, capture: CaptureData) -> list[Problem]:
    """A problem for launches recorded in part, unless a chosen subset or lost warps explain it."""
    if _sampled(capture) or any(device.lost for device in capture.devices):
        return []
    partial = int(np.count_nonzero((launches.missing_blocks > 0) | launches.uneven))
    blocks, found = counted(int(launches.missing_blocks.sum()), "block"), list[Problem]()
    text = f" recorded in part ({blocks} missing): recording began or ended while they ran"
    note(found, "partial", partial, "launch", text)
    return found


def _unknown(region: npt.NDArray[np.uint16], regions: tuple[Region, ...], nameless: int) -> list[Problem]:
    problems = list[Problem]()
    unnamed = [index for index, found in enumerate(regions) if not found.known]
    if len(unnamed) > 1:  # index 0 is the overflow, used only once all other indices are taken
        text = " with ids that no module of this capture names: shown as ?hash"
        note(problems, "unknown", np.isin(region, unnamed).sum(), "record", text)
    note(problems, "nameless", nameless, "kernel", " without metadata in this capture: shown by number")
    return problems


def _tracks(counts: Int64) -> npt.NDArray[np.int32]:
    """The row of each record."""
    ends = np.cumsum(counts)
    found = np.empty(int(ends[-1]) if len(ends) else 0, np.int32)

    def fill(part: slice) -> None:
        rows = np.arange(part.start, part.stop, dtype=np.int32)
        found[ends[part.start] - counts[part.start] : ends[part.stop - 1]] = np.repeat(rows, counts[part])

    each(fill, shares(len(counts)))
    return found


def _cluster(slabs: Slabs) -> Int64:
    """(w,) the linear index of each block's cluster in the grid of clusters; -1 without clusters."""
    member = np.flatnonzero(slabs.header["cluster"])
    if not len(member):
        return np.broadcast_to(np.int64(-1), len(slabs))
    found = np.full(len(slabs), -1, np.int64)
    word = slabs.header["cluster"][member].astype(np.int64)
    shape = np.maximum(np.stack([word >> shift & 255 for shift in (8, 16, 24)], axis=1), 1)
    at, size = slabs.block[member] // shape, -(-slabs.grid[member] // shape)
    found[member] = at[:, 0] + size[:, 0] * (at[:, 1] + size[:, 1] * at[:, 2])
    return found


def _warps(
    slabs: Slabs, owner: Int64, launches: Launches, kernel: Int64, axes: list[Axis], devices: list[_Device],
    last: Int64,
) -> Warps:  # fmt: skip
    header = slabs.header
    start = _column([axis.start for axis in axes], np.float64)
    rate = _column([axis.rate for axis in axes], np.float64)

    first = slabs.first_tick

    def ends(part: slice) -> npt.NDArray[np.float64]:
        at = start[part] + (last[part] - first[part]) * rate[part]
        return np.where(slabs.finished[part], at, np.nan)

    return Warps(
        device=owner,
        kernel=kernel,
        launch=launches.of,
        block=slabs.linear_block,
        block_xyz=slabs.block,
        grid=slabs.grid,
        threads=slabs.threads,
        warp=slabs.warp,
        lane=slabs.lane,
        sm=slabs.sm,
        cluster=_cluster(slabs),
        cluster_rank=filled(len(slabs), np.uint8, lambda part: header["cluster"][part] & 255),
        role=np.broadcast_to(np.int16(-1), len(owner)),
        start_ns=start,
        end_ns=filled(len(slabs), np.float64, ends),
        finished=slabs.finished,
        first_tick=first,
        last_tick=last,
        tick_ns=rate,
        curve=joined_curves(axes),
        error_ns=_column([axis.error for axis in axes], np.float64),
        ends_error_ns=_column([axis.ends_error for axis in axes], np.float64),
        timer=slabs.globaltimer,
        records=_column([device.records.counts for device in devices], np.int64),
        written=_column([device.records.written for device in devices], np.int64),
        start_width=filled(len(slabs), np.int64, lambda part: header["start_width"][part]),
        end_width=filled(len(slabs), np.int64, lambda part: header["end_width"][part] * slabs.finished[part]),
    )
