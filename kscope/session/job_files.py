"""Files that the ranks of `kscope run --ranks` write together at the end: their records as a dataset, and durations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..capture.capture import Capture
from ..errors import KscopeError, UsageError
from ..util.atomic_files import replacing
from ..util.grouping import grouped
from ..util.text import counted, number_ranges
from .job import Job, folder_of
from .torch_gather import gather_bytes

if TYPE_CHECKING:
    from ..trace import Trace


def write(job: Job, capture: Capture, trace: Trace, file: Path, *, sketch: bool) -> None:
    """Write this rank's part, when its capture is saved.

    Args:
        job: all ranks.
        capture, trace, file: this rank's recording, and its path.
        sketch: also write distributions of durations.

    Raises:
        MissingError: `sketch` needs a package that is not installed.
    """
    from ..merging.ranks import sketches  # loaded on first use

    made = sketches.write(sketches.of_trace(trace), job.here.rank) if sketch else b""
    together = job.together
    try:
        if together:
            _records(job, capture, trace, file)
    except UsageError:  # a rank has left
        together = False
    if not together:
        job.note(f"records of all ranks were not written as Parquet: a rank failed; {merge_command(job.folder)}")
    try:
        if sketch and together:
            _sketches(job, made, file)
    except UsageError:
        together = False
    if sketch and not together:
        _save(job, file.with_name(sketches.FILE), made)


def merge_command(folder: Path) -> str:
    """The command that writes the dataset later."""
    return f"kscope merge {folder} -o data/ writes all"


def _records(job: Job, capture: Capture, trace: Trace, file: Path) -> None:
    """Each rank places its records on the first rank's clock, and writes them."""
    from ..merging.ranks import dataset  # loaded on first use

    meeting = job.meeting
    gpus = 0 if file.stem.endswith(".failed") else len(capture.devices)  # the records of a failed device stay separate
    ranks = meeting.gather([file.name, gpus, job.leads, job.host])
    recorded = [rank for rank, (_, count, _, _) in enumerate(ranks) if count]
    if not recorded:
        return
    first = recorded[0]
    hosts = {ranks[first][3], job.host}
    needed = {first, *(rank for rank in recorded if ranks[rank][2] and ranks[rank][3] in hosts)} - {job.here.rank}
    part, problem, written = None, "", 0
    if gpus:
        try:
            others = [folder_of(job.folder, rank) / ranks[rank][0] for rank in sorted(needed)]
            part = dataset.part(capture, trace, file, others)
        except (KscopeError, OSError) as error:
            problem = str(error)
    begins = meeting.gather(None if part is None else part.begin)
    if part is not None:
        try:
            origin = min((begin for begin in begins if begin is not None), default=0)
            written = part.write(file.with_suffix(dataset.SUFFIX), origin)
        except (KscopeError, OSError) as error:
            problem = str(error)
    _report(job, meeting.gather([written, problem, 0.0 if part is None else part.bound]), file)


def _report(job: Job, found: Sequence[tuple[int, str, float]], file: Path) -> None:
    """Rank 0 prints which files were written, and which were not."""
    if job.here.rank:
        return
    problems = grouped((problem, rank) for rank, (_, problem, _) in enumerate(found) if problem)
    good = [one for one in found if not one[1]]
    if good:
        total, bound = sum(one[0] for one in good), max(one[2] for one in good)
        job.note(
            f"{job.folder}/rank=*/{file.stem}.parquet: {total:,} records of {counted(len(good), 'rank')}, within "
            f"\N{PLUS-MINUS SIGN}{bound:,.0f} ns; kscope query {job.folder} 'SELECT ... FROM records'"
        )
    for problem, ranks in problems.items():
        which = f"rank{'s' * (len(ranks) > 1)} {number_ranges(ranks)}"
        job.note(f"records of {which} were not written as Parquet: {problem}; {merge_command(job.folder)}")


def _sketches(job: Job, made: bytes, file: Path) -> None:
    """All sketches in one file, by torch.distributed; else each rank's in its folder."""
    from ..merging.ranks import sketches

    begin, problem, found = time.perf_counter(), "", None
    try:
        found = gather_bytes(made, job.here, job.meeting)
    except UsageError:
        raise
    except Exception as error:  # torch may raise anything
        problem = f"torch.distributed: {error}"
    if not all(job.meeting.gather(found is not None and not problem)):
        _save(job, file.with_name(sketches.FILE), made)
        if problem:
            job.note(f"rank {job.here.rank}: durations were not gathered, each rank has its own: {problem}")
        return
    if job.here.rank == 0 and found:
        data, took = b"".join(found), time.perf_counter() - begin
        _save(job, job.folder / sketches.FILE, data)
        job.note(
            f"{job.folder / sketches.FILE}: durations of {counted(len(found), 'rank')}, {len(data):,} bytes gathered "
            f"in {took:.3f} s; kscope ranks {job.folder} --sketch"
        )


def _save(job: Job, file: Path, data: bytes) -> None:
    try:
        with replacing(file) as out:
            out.write(data)
    except OSError as error:
        job.note(f"{file}: not written: {error}")
