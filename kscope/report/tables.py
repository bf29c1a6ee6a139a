"""The page's further tables: regions by role, occupancy of launches, and gaps, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..analysis.gaps import between
from ..analysis.occupancy import occupancy
from ..analysis.summary import summarize
from ..analysis.table import part_text, time_text
from ..tracedata.data import TraceData
from ..util.portable import clean

MOST_RECORDS = 300_000
"""Records of a trace whose gaps are computed: more take longer than the page."""
MOST_ROWS = 200


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


def tables(trace: TraceData) -> tuple[Table, ...]:
    """The tables of a trace, in the order of their tabs."""
    return _roles(trace), _occupancy(trace), _gaps(trace)


def _roles(trace: TraceData) -> Table:
    rows = [
        (
            str(row.key[0]),
            row.region,
            f"{row.count:,}",
            time_text(row.warp_time_ns),
            part_text(row.share),
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
            row.after,
            row.before,
            f"{row.count:,}",
            time_text(row.warp_time_ns),
            part_text(row.share),
            time_text(row.max_ns),
        )
        for row in between(trace)
    ]
    return _table("gaps", head, 2, rows, "Time of warps in no region, by the regions around it.")


def _table(name: str, head: tuple[str, ...], words: int, rows: Sequence[tuple[str, ...]], note: str) -> Table:
    """A table of valid text, cut after MOST_ROWS rows."""
    if len(rows) > MOST_ROWS:
        note = f"The first {MOST_ROWS} of {len(rows):,} rows. {note}".strip()
    return Table(name, head, words, tuple(tuple(map(clean, row)) for row in rows[:MOST_ROWS]), note)
