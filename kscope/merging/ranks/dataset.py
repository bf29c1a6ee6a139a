"""Writes the records of a job as Parquet in hive partitions, folder/rank=0007/NAME.parquet, on the first rank's clock.
DuckDB, Ray, Spark and Dask read the folder as one table with a column `rank`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from ...capture.capture import load_capture
from ...capture.capture_data import CaptureData
from ...errors import UsageError
from ...export import check
from ...trace import Trace, decode
from ..axis import move_to_axis
from .clocks import RankClock
from .collectives import clocks_by_collectives
from .gpus import RankGpu, check_ranks, of_trace, read, read_all
from .timeline import shift_on

SUFFIX = ".parquet"


@dataclass(frozen=True, eq=False)
class Dataset:
    """A written dataset.

    Attributes:
        records: their number.
        gpus: the GPUs.
        bounds: largest error of each GPU's clock against the first one's, ns.
    """

    records: int
    gpus: tuple[RankGpu, ...]
    bounds: tuple[float, ...]


def partitions(folder: Path) -> list[Path]:
    """The files of a dataset."""
    return sorted(folder.glob(f"rank=*/*{SUFFIX}"))


@dataclass(frozen=True, eq=False)
class Part:
    """The records of one rank.

    Attributes:
        trace: on its own clock.
        clocks: of its GPUs against the first rank's.
        begin: the first rank's time of its first warp, ns; None without records.
        bound: largest error of its times because of the clocks, ns.
    """

    trace: Trace
    clocks: tuple[RankClock, ...]
    begin: int | None
    bound: float

    def write(self, file: Path, origin: int) -> int:
        """Write the records on the first rank's clock, in ns after `origin`; returns how many. Raises OSError."""
        return _on_axis(self.trace, self.clocks, origin).export(file, limit=None)


def part(capture: CaptureData, trace: Trace, file: Path, others: Sequence[Path]) -> Part:
    """A rank's records, ready to be written.

    Args:
        capture, trace, file: its recording, and its path.
        others: captures of the first rank, and of those that compared GPUs' timers with this rank's or the first one's.

    Raises:
        UsageError: the rank recorded other collectives than the first one, or nothing compares their clocks.
        MissingError: pyarrow is not installed.
        FormatError: a file is not a capture.
        OSError: a file cannot be read.
    """
    check(file.with_suffix(SUFFIX))
    own = of_trace(capture, trace, str(file))
    beside = [gpu for other in others for gpu in read(other)]
    every = sorted((*own, *beside), key=lambda one: (one.rank, one.device))
    clocks = dict(zip(map(id, every), clocks_by_collectives(every), strict=True))
    mine = tuple(clocks[id(gpu)] for gpu in own)
    begin, bounds = _begin(mine, own)
    return Part(trace, mine, begin, max(bounds, default=0.0))


def write_dataset(
    files: Sequence[Path], folder: Path, ranks: Sequence[int] | None = None, launch: int | None = None,
    globs: Sequence[str] = (),
) -> Dataset:  # fmt: skip
    """Write the captures of a job as a dataset, with one rank in memory at a time.

    Args:
        files: a capture per rank.
        folder: the dataset's; created if it is missing.
        ranks: only these; the first of them is the reference.
        launch: only this launch of each, by its place in the order of begin, from 0.
        globs: names of collective kernels; by default those of COLLECTIVES.

    Raises:
        UsageError: the folder has a dataset already, a rank is missing, or the ranks recorded different
            collectives.
        MissingError: pyarrow is not installed.
        FormatError: a file is not a capture.
        OSError: a file cannot be read or written.
    """
    if partitions(folder):
        raise UsageError(
            f"{folder}: has a dataset already ({partitions(folder)[0]}); remove it, or give another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    check(folder / f"records{SUFFIX}")
    every = [gpu for gpu in read_all(files) if ranks is None or gpu.rank in ranks]
    check_ranks(ranks, every, len(files))
    clocks = clocks_by_collectives(every, globs)
    begin, bounds = _begin(clocks, every)
    records, origin = 0, begin or 0
    for (rank, file), group in groupby(zip(every, clocks, strict=True), lambda one: (one[0].rank, one[0].file)):
        trace = _on_axis(decode(load_capture(file)), [clock for _, clock in group], origin)
        trace = trace if launch is None else trace.filter(launch=launch)
        partition = folder / f"rank={rank:04d}"
        partition.mkdir(exist_ok=True)
        records += trace.export(partition / f"{Path(file).stem}{SUFFIX}", limit=None)
    return Dataset(records, tuple(every), bounds)


def _begin(clocks: Sequence[RankClock], gpus: Sequence[RankGpu]) -> tuple[int | None, tuple[float, ...]]:
    """The begin of the first warp of these GPUs, on the first rank's clock; and the error bound of each GPU's times."""
    placed = [clock.place(gpu.first) for clock, gpu in zip(clocks, gpus, strict=True)]
    begin = min((int(one.time.min()) for one in placed if len(one.time)), default=None)
    return begin, tuple(float(one.half.max(initial=0.0)) for one in placed)


def _on_axis(trace: Trace, clocks: Sequence[RankClock], origin: int) -> Trace:
    """The trace on the first rank's clock, in ns after `origin`. clocks: of its devices."""
    on = move_to_axis(trace, {at: shift_on(clock, trace.origin) for at, clock in enumerate(clocks)})
    shift = np.float64(on.origin - origin)
    warps = replace(on.warps, start_ns=on.warps.start_ns + shift, end_ns=on.warps.end_ns + shift)
    return replace(on, warps=warps, origin=origin)
