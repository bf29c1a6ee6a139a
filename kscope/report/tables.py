"""The page's further tables: regions by role, occupancy of launches, gaps, critical paths, and stalls, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..analysis.critical_path import Edge, path_of_last_block
from ..analysis.gaps import gaps_by_neighbors
from ..analysis.occupancy import occupancy
from ..analysis.samples.annotated import annotate
from ..analysis.samples.stalls import executions, stalls
from ..analysis.samples.stalls_text import reasons_text
from ..analysis.summary import summarize
from ..analysis.warp_stats import warp_ends
from ..capture.samples import Samples
from ..errors import UsageError
from ..tracedata.data import TraceData
from ..util.json_values import clean
from ..util.runs import extents
from ..util.terminal import part_text, time_text
from ..util.text import counted

MOST_RECORDS = 300_000
"""The most records of a trace for which gaps are computed: more would take longer than the rest of the page."""
MOST_ROWS = 200
_PATH = ("launch", "block", "part of the path", "time", "share")
MOST_PATHS = 20
"""Launches whose critical path is computed: the longest ones."""


@dataclass(frozen=True)
class Table:
    """A table of the page.

    Attributes:
        name: its tab.
        head: names of the columns; the first `words` hold text, the others numbers.
        words: number of columns that hold text.
        rows: cells, at most MOST_ROWS rows.
        note: a remark below it, empty for none.
    """

    name: str
    head: tuple[str, ...]
    words: int
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def tables(trace: TraceData, edges: Sequence[Edge] = ()) -> tuple[Table, ...]:
    """The tables of a trace, in the order of their tabs. edges: of the critical path."""
    known = (_roles(trace), _occupancy(trace), _gaps(trace), _path(trace, edges))
    return (*known, _stalls(trace, trace.samples), _source(trace, trace.samples)) if trace.samples else known


def _stalls(trace: TraceData, samples: Samples) -> Table:
    several = len(samples.functions) > 1
    rows = [
        (
            f"{row.kernel}: {row.name}" if several else row.name, reasons_text(row), f"{row.samples:,}",
            part_text(row.share), part_text(row.issued), f"{row.per_execution:.3g}" if row.executions else "-",
        )
        for row in stalls(samples, executions=executions(trace)).rows
    ]  # fmt: skip
    what = "where warps waited, and what for; kscope annotate shows lines"
    note = f"A sample every {samples.period:,} cycles: {what}."
    return _table("stalls", ("region", "waits for", "samples", "share", "issued", "per execution"), 2, rows, note)


def _source(trace: TraceData, samples: Samples) -> Table:
    """The lines of the files with samples, without the empty ones at both ends."""
    found = annotate(trace, samples, around=0)
    several = len(found.files) > 1
    rows = [
        (
            f"{Path(file.path).name}:{line.number}" if several else f"{line.number}",
            part_text(line.share) if line.samples else "", line.text, reasons_text(line, 2),
            f"{line.samples:,}" if line.samples else "", part_text(line.executed) if line.samples else "",
            f"{line.registers:,}" if line.registers else "", f"{line.instructions:,}" if line.instructions else "",
        )
        for file in found.files
        for line in file.lines
    ]  # fmt: skip
    note = "Lines with their samples; kscope annotate also shows the instructions of each line."
    if found.elsewhere:
        note += f" {counted(sum(found.elsewhere.values()), 'sample')} without a source line."
    head = ("line", "share", "source", "waits for", "samples", "executed", "registers", "instructions")
    return _table("source", head, 4, rows, note)


def _roles(trace: TraceData) -> Table:
    rows = [
        (
            str(row.key[0]), row.region, f"{row.count:,}", time_text(row.warp_time_ns), part_text(row.share),
            time_text(row.mean_ns),
        )
        for row in summarize(trace, "role").regions
    ]  # fmt: skip
    note = "Inferred roles are warps that record the same regions; kscope.role() in the kernel names them."
    inferred = any("inferred" in role for role, *_ in rows)
    return _table("roles", ("role", "region", "count", "warp time", "share", "mean"), 2, rows, note if inferred else "")


def _occupancy(trace: TraceData) -> Table:
    found = occupancy(trace)
    rows = [
        (
            f"{row.kernel} #{row.launch}", time_text(row.time_ns), f"{row.blocks:,}", f"{row.sms:,}",
            f"{row.resident:,}", "-" if row.waves is None else f"{row.waves:,}",
            time_text(row.ramp_ns), time_text(row.tail_ns), part_text(row.tail_idle),
        )
        for row in found.launches
    ]  # fmt: skip
    head = ("launch", "time", "blocks", "SMs", "at once", "waves", "ramp", "tail", "lost in tail")
    return _table("occupancy", head, 1, rows, " ".join(found.limits))


def _gaps(trace: TraceData) -> Table:
    head = ("after", "before", "count", "warp time", "share", "longest")
    if len(trace) > MOST_RECORDS:
        return _table("gaps", head, 2, [], f"More than {MOST_RECORDS:,} records: see kscope gaps, or filter the trace.")
    rows = [
        (
            row.after, row.before, f"{row.count:,}", time_text(row.warp_time_ns), part_text(row.share),
            time_text(row.max_ns),
        )
        for row in gaps_by_neighbors(trace)
    ]  # fmt: skip
    return _table("gaps", head, 2, rows, "Time of warps in no region, by the regions around it.")


def _path(trace: TraceData, edges: Sequence[Edge]) -> Table:
    """For each launch, the path through the block that ended last, by region."""
    rows, unmatched = list[tuple[str, ...]](), 0
    try:
        for launch in _longest_launches(trace):
            found = path_of_last_block(trace, edges, launch)
            if found is None:
                continue
            place = (f"{found.kernel} #{launch}", found.block)
            rows += [(*place, part, time_text(ns), part_text(share)) for part, ns, share in found.parts]
            unmatched += found.unmatched
    except UsageError as error:  # a ring without the first records, for instance
        return _table("path", _PATH, 3, [], str(error))
    note = "The critical path of the block that ended last."
    if not edges:
        note += (
            " No signals are named, so it stays on one warp: kscope view --edge SIGNAL:WAIT, or"
            ' trace.show(edges=[("SIGNAL", "WAIT")]).'
        )
    if unmatched:
        note += f" {counted(unmatched, 'wait')} ended before the signal: an edge is wrong, or records are missing."
    return _table("path", _PATH, 3, rows, note)


def _longest_launches(trace: TraceData) -> list[int]:
    """MOST_PATHS launches that took longest, in order of start."""
    rows = trace.shown_warps
    launch, ends = trace.warps.launch[rows], np.nan_to_num(warp_ends(trace)[rows])
    first, last = extents(launch, len(trace.launches), trace.warps.start_ns[rows], ends)
    return sorted(np.argsort(first - last, kind="stable")[:MOST_PATHS].tolist())


def _table(name: str, head: tuple[str, ...], words: int, rows: Sequence[tuple[str, ...]], note: str) -> Table:
    """A table of valid text, cut after MOST_ROWS rows."""
    if len(rows) > MOST_ROWS:
        note = f"The first {MOST_ROWS} of {len(rows):,} rows. {note}".strip()
    return Table(name, head, words, tuple(tuple(map(clean, row)) for row in rows[:MOST_ROWS]), note)
