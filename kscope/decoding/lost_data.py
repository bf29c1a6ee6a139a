"""Finds data that a full pool or a fault kept out of the trace, per kernel, as far as it can be known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..capture.capture_data import CaptureData
from ..capture.model import Problem
from ..tracedata.data import LostLaunches
from ..util.arrays import Int64
from ..util.runs import group_equal, heads, most_of, order_by
from ..util.text import counted, some
from .launches import Launches, intervals
from .slabs import Slabs

_BROKEN, _STOPPED = "driver", "drain"
"""Problems: a fault broke the context; launches may be missing that had room."""
_SHARP_NS = 256
"""A timer with a longer tick may not separate two replays of a graph, which are about 1 us apart."""
_MOST_NAMES = 8
"""Kernels that a problem names."""


@dataclass(frozen=True)
class Lost:
    """Missing data, as far as it is known.

    Attributes:
        missing: (l,) warps (with AllThreads, lanes) without a slab, at least, of each launch in the trace; or empty.
        launches: launches without any slab.
        problems: both, in words, per kernel.
    """

    missing: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    launches: tuple[LostLaunches, ...] = ()
    problems: tuple[Problem, ...] = ()


def find_lost(capture: CaptureData, slabs: Slabs, launches: Launches) -> Lost:
    """Find missing data, if a device counted lanes that found no room, or a fault broke its context.

    The device counts lanes that found no room, but not their kernels. The blocks of a launch show what the others lack;
    and a launch that the host saw and no slab names left nothing. Both are lower bounds: a launch that left nothing has
    an unknown number of lanes, and the host sees no graph replays but torch's. A fault may take the records of the
    launch in which it occurs and of later ones: the kernels that lack a launch may have caused it. In languages whose
    launches the host does not see, the launch table does, where the fault left the launch's entry.

    Args:
        capture: a capture in which every block, warp and SM may record.
        slabs: of all its devices.
        launches: of these slabs.
    """
    full = np.array([device.lost > 0 for device in capture.devices], bool)
    kinds = {one.kind for one in capture.problems}
    broken = _BROKEN in kinds
    if not full.any() and not broken:
        return Lost()
    names = {kernel.id: kernel.name for module in capture.modules for kernel in module.kernels}
    missing = _missing(slabs, launches) * (full[launches.device] | broken)
    gone: tuple[LostLaunches, ...] = ()
    if _STOPPED not in kinds:
        gone = _merged(_gone(capture, slabs, launches, names), _begun(capture, slabs, launches, names))
    in_part = _in_part(launches, missing, slabs.noun, names, broken)
    problems = [*in_part, *(_unrecorded(one, broken) for one in gone)]
    if broken and not problems and slabs.finished.all():
        problems += _without_a_trace(capture)
    return Lost(missing, gone, tuple(problems))


def _missing(slabs: Slabs, launches: Launches) -> Int64:
    """(l,) lanes that the blocks of a launch lack compared with the fullest block of this kernel and block size."""
    rows = np.flatnonzero(~launches.in_turn | (slabs.lane == 0))  # which other lanes record depends on the data
    launch, block = launches.of[rows], slabs.linear_block[rows]
    order = order_by(launch, block)
    first = heads(launch[order], block[order])
    of, lanes = launch[order][first], np.diff(np.append(first, len(order)))
    threads = np.zeros(len(launches), np.int64)
    threads[launch] = slabs.header["ntid"][rows]
    _, _, shape = group_equal(group_equal(launches.kernel)[2] << 32 | threads)
    most = most_of(shape[of], lanes, len(launches), 0)
    seen, blocks = (np.bincount(one, minlength=len(launches)) for one in (launch, of))
    return np.asarray(np.maximum((launches.missing_blocks + blocks) * most[shape] - seen, 0), np.int64)


def _gone(capture: CaptureData, slabs: Slabs, launches: Launches, names: dict[int, str]) -> tuple[LostLaunches, ...]:
    """Kernels with fewer launches in the trace than the host saw.

    A grid id is one launch, or replays of one: at most as many as it has separate intervals of time.
    """
    sharp = all(0 < device.tick_ns <= _SHARP_NS for device in capture.devices)
    replays = _most_replays(slabs, launches) if sharp and len(slabs) else None
    found = []
    for number, seen in capture.launches.items():
        grids = np.unique(launches.family[launches.kernel == number])
        if number not in names or (seen.replayed and len(grids) and replays is None):
            continue
        launched = seen.direct + seen.replayed
        recorded = int(replays[grids].sum()) if seen.replayed and replays is not None else len(grids)
        if launched > recorded:
            found.append(LostLaunches(names[number], number, launched - recorded, launched))
    return tuple(found)


def _begun(capture: CaptureData, slabs: Slabs, launches: Launches, names: dict[int, str]) -> list[LostLaunches]:
    """Launches that a broken context's launch table has, and no slab.

    All replays of a graph's launch have one number and one entry, which has the last one's time: without slabs, if all
    of its slabs ended before.
    """
    ended = np.maximum(slabs.header["start_time"], slabs.header["end_time"] * slabs.finished)
    last = most_of(launches.of, ended, len(launches), 0)
    recorded: dict[tuple[int, int, int], int] = {}
    rows = zip(
        launches.device.tolist(), launches.kernel.tolist(), launches.grid_id.tolist(), last.tolist(), strict=True
    )
    for *key, time in rows if any(device.begun for device in capture.devices) else ():
        launch = key[0], key[1], key[2]
        recorded[launch] = max(time, recorded.get(launch, 0))
    found = Counter[int]()
    for index, device in enumerate(capture.devices):
        for one in device.begun:
            until = recorded.get((index, one.kernel, one.grid_id), -1)
            found[one.kernel] += until < 0 or until + device.tick_ns < one.time
    counts = {number: len(np.unique(launches.grid_id[launches.kernel == number])) for number in found}
    return [
        LostLaunches(names.get(number, f"{number:016x}"), number, count, counts[number] + count)
        for number, count in found.items()
        if count
    ]


def _merged(counted: Sequence[LostLaunches], begun: Sequence[LostLaunches]) -> tuple[LostLaunches, ...]:
    """Launches that the host counted, and those in the launch table of other kernels."""
    known = {one.kernel_id for one in counted}
    both = [*counted, *(one for one in begun if one.kernel_id not in known)]
    return tuple(sorted(both, key=lambda one: (one.kernel, one.kernel_id)))


def _most_replays(slabs: Slabs, launches: Launches) -> Int64 | None:
    """The most runs of each family of launches; None if the times are damaged."""
    found = intervals(slabs, launches.family[launches.of])
    if found is None:
        return None
    order, interval = found
    return most_of(launches.family[launches.of][order], interval + 1, int(launches.family.max()) + 1, 0)


def _in_part(launches: Launches, missing: Int64, noun: str, names: dict[int, str], broken: bool) -> list[Problem]:
    problems = []
    for number in np.unique(launches.kernel[missing > 0]).tolist():
        mine = missing[(launches.kernel == number) & (missing > 0)]
        kernel, lanes = names.get(number, f"{number:016x}"), counted(int(mine.sum()), noun)
        text = f"kernel {kernel}: {counted(len(mine), 'launch')} recorded in part, at least {lanes} missing"
        if broken:
            text += ": the fault lost their records, or recording began or ended meanwhile"
        problems.append(Problem("partial", text, len(mine), kernel))
    return problems


def _without_a_trace(capture: CaptureData) -> list[Problem]:
    """A problem for a fault that no kernel shows: the kernels that may have caused it."""
    kernels = (kernel for module in capture.modules for kernel in module.kernels)
    found = sorted({kernel.name for kernel in kernels if kernel.id not in capture.launches})
    if not found:
        return []
    text = "no kernel shows the fault: it is in a kernel without marks, or in one whose launches are not counted"
    return [Problem("unrecorded", f"{text}: {some(found, _MOST_NAMES)}")]


def _unrecorded(lost: LostLaunches, broken: bool) -> Problem:
    launched = counted(lost.launched, "launch")
    text = f"kernel {lost.kernel}: at least {lost.count:,} of {launched} left no record"
    if broken:
        text += ": the fault is in this kernel or in one before it, or lost its records"
    return Problem("unrecorded", text, lost.count, lost.kernel)
