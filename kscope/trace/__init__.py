"""Trace: a decoded recording with its columns, filters, summary and exports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..analysis.display import preformatted
from ..capture.blocks import BlockSelection
from ..capture.capture import load_capture
from ..capture.capture_data import CaptureData
from ..capture.model import Problem
from ..errors import UsageError
from ..tracedata import filters
from ..tracedata.data import TraceData
from ..tracedata.info import info
from ..util.arrays import Bools
from ..util.parallel import same_threads
from ..util.text import counted, some
from .notebook import MOST, Page, page, show

if TYPE_CHECKING:
    from ..analysis.compare import Comparison
    from ..analysis.critical_path import GivenEdge, Path
    from ..analysis.idle import Gaps
    from ..analysis.occupancy import Occupancy
    from ..analysis.overlap import Overlap
    from ..analysis.samples.crosscheck import Crosscheck
    from ..analysis.samples.stalls import Stalls
    from ..analysis.summary import Summary
    from ..capture.samples import Samples

_MOST_NAMES, _MOST_ROWS = 8, 10
_REASONS = frozenset({"absent", "drain", "driver", "foreign", "lost", "nothing", "off", "torn"})
"""Kinds of problems that explain why a trace has no records."""


class Trace(TraceData):
    __doc__ = TraceData.__doc__

    def filter(
        self,
        *,
        kernel: str | Iterable[str] | None = None,
        region: str | Iterable[str] | None = None,
        track: str | Iterable[str] | None = None,
        launch: int | range | Iterable[int] | None = None,
        block: BlockSelection | None = None,
        warp: int | range | Iterable[int] | None = None,
        lane: int | range | Iterable[int] | None = None,
        sm: int | range | Iterable[int] | None = None,
        device: int | range | Iterable[int] | None = None,
        time: tuple[float, float] | None = None,
        where: Bools | None = None,
    ) -> Trace:
        """The records that match all conditions. `warps`, names and problems are not filtered.

        Args:
            kernel, region: names or patterns such as "attn_*", one or several; kernels also by hash.
            track: names or patterns of user tracks.
            launch, warp, lane, sm, device: a number, a range, or several of them.
            block: "0,8" or (0, 8), a block by its coordinates; "0:4,8", ranges of them; 40 or "#40", a block by its
                linear number x + nx * (y + ny * z); range(100) or "0:100"; or several as a list.
            time: (first, last) in ns after `origin`; keeps records that overlap with it.
            where: (n,) bool, a mask.

        Returns:
            A new trace.

        Raises:
            UsageError: a name or number that the trace does not have, or a mask of another shape.
        """
        given = {name: value for name, value in locals().items() if name != "self" and value is not None}
        return filters.select(self, given)

    def __repr__(self) -> str:
        caveat = info(self).caveat
        return super().__repr__().removesuffix(">") + (f"; {caveat}>" if caveat else ">")

    def summary(self, by: str | Iterable[str] = (), *, roles: Mapping[str, Iterable[int]] | None = None) -> Summary:
        """Statistics per kernel and region: count, total, share, self, mean, p50, p90, p99, min, max, imbalance, first
        and last start, idle.

        Args:
            by: additional keys, one or several: launch, role, sm, block, warp, lane, device; of traces from
                kscope.merge() also module, op, line, stack.
            roles: for by="role", the role names and their warps.

        Returns:
            A summary, which prints as a table.

        Raises:
            UsageError: unknown key.
        """
        from ..analysis.summary import summarize  # loaded on first use

        return summarize(self, by, roles)

    def gaps(
        self,
        *,
        of: str | None = None,
        wait: Iterable[str] | None = None,
        roles: Mapping[str, Iterable[int]] | None = None,
        top: int = 10,
    ) -> Gaps:
        """Waits, time in no region by neighboring regions, and the longest gaps.

        Args:
            of: gaps within this region instead of time in no region.
            wait: names of regions that wait; by default those with a word such as "wait" in their name.
            roles: role names and their warps; inferred without.
            top: number of single gaps.

        Raises:
            UsageError: no such region, or a negative `top`.
        """
        from ..analysis.idle import gaps

        return gaps(self, of=of, wait=wait, roles=roles, top=top)

    def overlap(self, *, roles: Mapping[str, Iterable[int]] | None = None) -> tuple[Overlap, ...]:
        """Concurrent activity of the warps of a block: a matrix per kernel.

        Args:
            roles: role names and their warps; inferred without.
        """
        from ..analysis.overlap import overlap

        return overlap(self, roles)

    def occupancy(self, bins: int = 40) -> Occupancy:
        """Waves of blocks by launch, use of each SM, and warps alive per SM over time.

        Args:
            bins: number of bins on the time axis.

        Raises:
            UsageError: bins < 1.
        """
        from ..analysis.occupancy import occupancy

        return occupancy(self, bins)

    def stalls(self, by: str = "region") -> Stalls:
        """Stalls: where warps waited and why, for a session with ``stalls=True``.

        Args:
            by: "region", "line", "instruction" or "kernel".

        Raises:
            UsageError: an unknown key, or the trace has no samples.
        """
        from ..analysis.samples.stalls import executions, stalls

        return stalls(self._sampled(), by, executions(self) if by == "region" else {})

    def crosscheck(self) -> Crosscheck:
        """Each region's share of time by the marks' clocks, beside its share of samples.

        Raises:
            UsageError: the trace has no samples.
        """
        from ..analysis.samples.crosscheck import crosscheck

        return crosscheck(self, self._sampled())

    def _sampled(self) -> Samples:
        if self.samples is None:
            raise UsageError("the trace has no samples of stalls: record with kscope.profile(stalls=True)")
        return self.samples

    def path(self, *edges: GivenEdge, launch: int = 0, block: BlockSelection = 0) -> Path:
        """The critical path of one block, as in ``trace.path(("load", "wait_full"), ("mma", "wait_empty", 4))``.

        Args:
            *edges: (signal, wait) or (signal, wait, lag): the end of region `signal` satisfies region `wait`, `lag`
                rounds later.
            launch: index into `launches`.
            block: one block, as for filter().

        Raises:
            UsageError: no edge, a region that the block does not have, a negative lag, or a block without records.
        """
        from ..analysis.critical_path import as_edges, critical_path

        return critical_path(self, as_edges(edges), launch, block)

    def compare(self, other: TraceData, *, level: float | None = None, least: float | None = None) -> Comparison:
        """Compare this trace with another one: what became slower, with intervals.

        Args:
            other: the trace after the change.
            level: confidence level of the intervals, by default 0.95.
            least: the smallest change that counts, by default 0.01, which is 1 %.

        Raises:
            UsageError: `other` is not a trace, or `level` or `least` is not between 0 and 1.
        """
        if not isinstance(other, TraceData):
            raise UsageError(f"compare({other!r}): expected a trace, such as kscope.load('after.kscope')")
        from ..analysis.compare import Options, compare

        usual = Options()
        level, least = usual.level if level is None else level, usual.least if least is None else least
        return compare(self, other, Options(level=level, least=least))

    def plot(self, *, limit: int | None = MOST, height: int = 640, edges: Iterable[GivenEdge] = ()) -> Page:
        """The report page, SM x time, for a notebook: self-contained, without a network or a server.

        Args:
            limit: records to draw, the first by time; None for all.
            height: of the frame, in pixels.
            edges: signals and the waits that they satisfy, for the critical path, as for path().

        Returns:
            A page, which a notebook shows, and which has `save(path)`.

        Raises:
            UsageError: not an edge.
        """
        return page(self, limit, height, edges)

    def show(self, *, limit: int | None = None, edges: Iterable[GivenEdge] = ()) -> None:
        """Show the report page: in a notebook below the cell, else in the browser.

        Args:
            limit: records to draw, the first by time; None for half a million in a notebook, all in the browser.
            edges: signals and the waits that they satisfy, for the critical path, as for path().

        Raises:
            UsageError: not an edge.
        """
        show(self, limit, edges)

    def html(self) -> str:
        """The counts and the longest regions as HTML, which a notebook shows."""
        return preformatted(f"{self!r}\n\n{self.summary().text(140, _MOST_ROWS)}")

    _repr_html_ = html

    def export(self, path: str | os.PathLike[str], **options: Any) -> int:
        """Write a file in the format of its suffix: .pftrace, .json, .parquet, .arrow, .csv, .hatchet and more
        (docs/outputs.md).

        Args:
            path: the file.
            **options: limit="auto" (2 million slices in timelines, else all; None for all), force=False (allow more
                than 15 million slices), progress=False (a bar on stderr). Timelines only: group="sm" ("block",
                "warp"), processes="launches" ("groups"), args=True (cycles, exact ns), flows=[("load", "dot")]
                (arrows by value). Pages only: edges=[("load", "wait_full")] (for the critical path, as for path()).

        Returns:
            The number of records written.

        Raises:
            UsageError: unknown suffix, unwritable path, invalid option, or too many slices.
            MissingError: the format needs a package that is not installed.
        """
        from ..export import export  # loaded on first use

        return export(self, path, **options)

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with one row per record and the columns of docs/outputs.md; names are categories.

        Raises:
            MissingError: pandas is not installed.
        """
        from ..export.dataframe import frame  # loaded on first use

        return frame(self)

    def to_arrow(self) -> Any:
        """A pyarrow.Table with one row per record and the columns of docs/outputs.md; names are dictionary-encoded,
        unknown values null, problems and launches in the metadata.

        Raises:
            MissingError: pyarrow is not installed.
        """
        from ..export.columnar import table  # loaded on first use

        return table(self)


def as_read(data: TraceData, why_empty: str) -> Trace:
    """The trace of what a decoder or a reader found. If it has no records, a problem gives the reason.

    Args:
        data: the columns.
        why_empty: the reason if no warp recorded, and no problem gives one.
    """
    problems = data.problems
    if not len(data) and (len(data.warps) or not any(problem.kind in _REASONS for problem in problems)):
        why = f"{counted(len(data.warps), 'warp')} ran without reaching a region" if len(data.warps) else why_empty
        problems = (Problem("blank", f"no records: {why}"), *problems)
    columns: dict[str, Any] = {**vars(data), "problems": problems}
    return Trace(**columns)


def decode(capture: CaptureData) -> Trace:
    """Decode a capture. Never raises on damaged data: damage is reported in `Trace.problems`.

    Args:
        capture: from profile() or kscope.load_capture().

    Returns:
        The trace.
    """
    from ..decoding.assemble import assemble  # the decoder is loaded on first use

    with same_threads():
        return as_read(assemble(capture), _why_empty(capture))


def load(path: str | os.PathLike[str], *, max_bytes: int | None = None) -> Trace:
    """Read a `.kscope` file and decode it. Safe for untrusted files.

    Args:
        path: a capture's file. kscope.load_capture() reads it without decoding.
        max_bytes: as in load_capture().

    Returns:
        The trace.

    Raises:
        FormatError: not a capture, truncated, damaged, of another version, or larger than `max_bytes` unpacked.
        OSError: the file cannot be read.
    """
    return decode(load_capture(path, max_bytes=max_bytes))


def _why_empty(capture: CaptureData) -> str:
    if capture.samples is not None and not capture.modules:
        return "no kernel with regions was loaded; for the samples of stalls see kscope stalls"
    names = sorted({kernel.name for module in capture.modules for kernel in module.kernels})
    if not names:
        return (
            "no kernel with regions was loaded while recording was on. Kernels compiled earlier, also by another "
            "process into a library's cache, have none: compile them inside the session. auto= or --auto marks the "
            "operations of kernels without regions"
        )
    return (
        f"kernels with regions were loaded ({some(names, _MOST_NAMES)}), but none was launched in the "
        "session, no region was reached, or a strategy, block=, warp=, sm= or a predicate excluded every warp"
    )
