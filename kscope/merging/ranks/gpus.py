"""The GPUs of a job's ranks as a few arrays: begin and end of launches on each, and the work of their warps. Captures
themselves are not kept, so that thousands fit in memory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from ...analysis.warp_regions import warp_regions
from ...capture.capture import load_capture
from ...capture.capture_data import CaptureData
from ...decoding.assemble import host_offset
from ...errors import UsageError
from ...trace import Trace, decode
from ...util.arrays import Float, Int64
from ...util.parallel import one_thread, workers
from ...util.runs import most_of, numbered
from ...util.text import number_ranges
from ..launch_times import launch_times
from .clock_files import Compared, offsets, read_comparisons

SUFFIX = ".kscope"
_FEW = 16
"""Number of captures that one process reads about as fast as several."""


@dataclass(frozen=True, eq=False)
class RankGpu:
    """The recording of one GPU of a rank. Times are int64 ns of its %globaltimer, shifted by a constant.

    Attributes:
        rank, device, host, file: of the recording.
        kernels: names.
        kernel: (l,) index into `kernels` of each launch, in order of begin.
        first, last: (l,) begin of the first warp and end of the last one.
        error: (l,) largest error of these two, ns.
        syncs: (s, 3) readings of the host's clock, of this one, and of the host's again.
        regions: names.
        launch, region, own: (c,) for each launch and region the longest time that a warp spent in it, without
            nested ones; own in float64 ns.
        uuid: the GPU's; empty if unknown.
        shift: offset added to its %globaltimer.
        compared: comparisons by the rank, in a job that began with kscope run --ranks.
        offsets: (o, 3) lead of the host's clock over the one that all hosts follow, see offsets().
    """

    rank: int
    device: int
    host: str
    file: str
    kernels: tuple[str, ...]
    kernel: Int64
    first: Int64
    last: Int64
    error: Int64
    syncs: Int64
    regions: tuple[str, ...]
    launch: Int64
    region: Int64
    own: Float
    uuid: str = ""
    shift: int = 0
    compared: Compared = field(default_factory=Compared)
    offsets: Int64 = field(default_factory=lambda: np.zeros((0, 3), np.int64))

    def launches_of(self, names: Callable[[str], bool]) -> Int64:
        """Launches of the kernels that names() accepts."""
        return np.flatnonzero(np.isin(self.kernel, [at for at, name in enumerate(self.kernels) if names(name)]))


def captures(folder: Path) -> list[Path]:
    """The captures in a folder and the folders below it.

    Raises:
        UsageError: there is none.
    """
    found = sorted(folder.rglob(f"*{SUFFIX}"))
    found = [file for file in found if not file.name.endswith(f".failed{SUFFIX}")]
    if not found:
        raise UsageError(
            f"{folder}: no captures; record one per rank: torchrun ... -m kscope run -o {folder}/step.%r{SUFFIX} "
            "train.py"
        )
    return found


def rank_of(capture: CaptureData) -> int:
    """The rank that recorded a capture; 0 if there was no job."""
    rank = capture.host.get("rank")
    return rank if isinstance(rank, int) and rank >= 0 else 0


def read_all(files: Sequence[Path]) -> list[RankGpu]:
    """The GPUs of captures, in order of rank and device; in several processes if there are many.

    Raises:
        UsageError: two captures are of one rank.
        FormatError: a file is not a capture.
        OSError: a file cannot be read.
    """
    if len(files) <= _FEW or not hasattr(os, "fork") or threading.active_count() > 1:
        found = [gpu for file in files for gpu in read(file)]
    else:
        with ProcessPoolExecutor(workers(), mp_context=get_context("fork"), initializer=one_thread) as pool:
            parts = pool.map(read, files, chunksize=max(1, len(files) // (8 * workers())))
            found = [gpu for part in parts for gpu in part]
    found.sort(key=lambda one: (one.rank, one.device))
    for a, b in pairwise(found):
        if (a.rank, a.device) == (b.rank, b.device):
            raise UsageError(f"{a.file} and {b.file} are both of rank {a.rank}: keep the captures of one run only")
    return found


def check_ranks(ranks: Sequence[int] | None, found: Sequence[RankGpu], captures: int) -> None:
    """Check that all named ranks are present. Raises UsageError."""
    missing = sorted(set(ranks or ()) - {gpu.rank for gpu in found})
    if missing or not found:
        raise UsageError(f"--ranks: no capture of rank {number_ranges(missing)} among {captures:,} captures")


def read(file: Path) -> list[RankGpu]:
    """The GPUs of one capture."""
    capture = load_capture(file)
    return of_trace(capture, decode(capture), str(file))


def of_trace(capture: CaptureData, trace: Trace, file: str) -> list[RankGpu]:
    """The GPUs of a capture that was decoded."""
    host = capture.host.get("hostname")
    host = host if isinstance(host, str) else ""
    beside, ahead = read_comparisons(Path(file)), offsets(Path(file), host)
    warps, times = trace.warps, launch_times(trace)
    error = most_of(warps.launch, warps.ends_error_ns, len(trace.launches), 0.0)
    found = warp_regions(trace)
    key = warps.launch[found.track] * max(1, len(found.names)) + found.name
    cells, cell = np.unique(key, return_inverse=True)
    own = most_of(cell.ravel(), found.own * warps.tick_ns[found.track], len(cells), 0.0)
    of_launch, of_region = np.divmod(cells, max(1, len(found.names)))
    names = {name: at for at, name in enumerate(trace.kernels)}
    kernel = np.array([names[one.kernel] for one in trace.launches], np.int64)
    result = []
    for number, one in enumerate(capture.devices):
        at = np.flatnonzero((times.device == number) & times.recorded)
        at = at[np.argsort(times.first[at], kind="stable")]
        place = numbered(at, len(times.first), -1)
        mine = place[of_launch] >= 0
        offset = host_offset(one)
        syncs = [(sync.host_before, sync.globaltimer + offset, sync.host_after) for sync in one.syncs]
        result.append(RankGpu(
            rank_of(capture), one.ordinal, host, file, trace.kernels, kernel[at],
            trace.origin + times.first[at], trace.origin + times.last[at], np.ceil(error[at]).astype(np.int64) + 1,
            np.array(syncs, np.int64).reshape(-1, 3), found.names, place[of_launch[mine]], of_region[mine],
            own[mine], one.uuid, offset, beside, ahead,
        ))  # fmt: skip
    return result
