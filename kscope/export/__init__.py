"""Trace export: one module per format, selected by the file's suffix."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..util.atomic_files import replacing, target, writable
from ..util.text import nearest

if TYPE_CHECKING:
    from ..analysis.critical_path import GivenEdge
    from ..tracedata.data import TraceData

DEFAULT_LIMIT = 2_000_000
"""Slices of a timeline by default: viewers open about 0.3 million per second."""
MANY_SLICES, MAX_SLICES = 5_000_000, 15_000_000
"""Slices that cause a warning, and slices that need force=True."""
GZIP = ".gz"


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes:
        module: its module. A function in it writes a timeline or a trace to a binary file, and calls step(count) with
            the number of records done; needs(), if there is one, raises MissingError without a package.
        description: a phrase for help texts.
        timeline: it draws a Timeline, with a limit and view options; else it writes a trace.
        gzip: ``.gz`` may follow the suffix.
        page: it is a page, with a critical path.
        function: of the module, that writes it.
    """

    module: str
    description: str
    timeline: bool = False
    gzip: bool = False
    page: bool = False
    function: str = "write"

    def suffixes(self, suffix: str) -> tuple[str, ...]:
        """The suffix, and the gzipped one if allowed."""
        return (suffix, suffix + GZIP) if self.gzip else (suffix,)


FORMATS: dict[str, Format] = {
    ".pftrace": Format("kscope.export.perfetto.pftrace", "timeline for Perfetto", timeline=True, gzip=True),
    ".speedscope.json": Format("kscope.export.speedscope", "flame graph for speedscope.app", gzip=True),
    ".json": Format("kscope.export.chrome", "timeline in Chrome's trace event format", timeline=True, gzip=True),
    ".parquet": Format(
        "kscope.export.columnar", "all columns, for pandas, Polars, DuckDB (needs pyarrow)", function="write_parquet"
    ),
    ".arrow": Format("kscope.export.columnar", "all columns, memory-mappable (needs pyarrow)"),
    ".feather": Format(
        "kscope.export.columnar", "all columns, lz4-compressed (needs pyarrow)", function="write_feather"
    ),
    ".csv": Format("kscope.export.csvrows", "all columns, for spreadsheets", gzip=True),
    ".hatchet": Format("kscope.export.hatchet", "call tree for proton-viewer: cycles, normalized_cycles, time"),
    ".folded": Format("kscope.export.folded", "stacks for flamegraph.pl and inferno", gzip=True),
    ".html": Format("kscope.report", "self-contained page for any browser", page=True),
}
"""Suffix -> format; the first match counts."""


def suffixes() -> list[str]:
    """Every supported suffix."""
    return [name for suffix, form in FORMATS.items() for name in form.suffixes(suffix)]


def export(
    trace: TraceData,
    path: str | os.PathLike[str],
    *,
    limit: int | str | None = "auto",
    force: bool = False,
    progress: bool = False,
    edges: Iterable[GivenEdge] = (),
    **options: Any,
) -> int:
    """Write a trace in the format of the path's suffix, atomically; samples of stalls beside a table's records, to
    NAME.stalls.SUFFIX.

    Args:
        trace: the trace.
        path: the file to write.
        limit: write at most this many records, the first by time; the file notes the omission. None for all,
            "auto" for 2 million in timelines and all otherwise.
        force: write timelines of more than 15 million slices.
        progress: show a progress bar on stderr.
        edges: of pages only: signals and the waits that they satisfy, for the critical path.
        **options: of timelines only: `group`, `processes`, `args`, `flows`, see View.

    Returns:
        The number of records written.

    Raises:
        UsageError: unknown suffix, unwritable path, invalid option, or too many slices.
        MissingError: the format needs a package that is not installed.

    Warns:
        UserWarning: the timeline has more than 5 million slices.
    """
    from ..util import progress as bars
    from ..util.gz import GzipWriter
    from . import sample_rows  # these need the columns; the table above does not
    from . import timeline as drawing
    from .view_options import VIEW_OPTIONS, view

    path = Path(path)
    form, write = check(path)
    known = ("limit", "force", "progress", "edges", *VIEW_OPTIONS)
    if unknown := [name for name in options if name not in VIEW_OPTIONS]:
        raise UsageError(f"export({path.name!r}, {unknown[0]}=...): no such option{nearest(unknown[0], known)}")
    if options and not form.timeline:
        raise UsageError(f"export({path.name!r}, {next(iter(options))}=...): only timelines have this option")
    more = {"edges": edges} if edges else {}
    if more and not form.page:
        raise UsageError(f"export({path.name!r}, edges=...): only pages (.html) have this option")
    shown = view(**options)
    most = (DEFAULT_LIMIT if form.timeline else None) if limit == "auto" else limit
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise UsageError(f'export(limit={limit!r}): expected a positive number of records, None for all, or "auto"')
    count = len(trace) if most is None else min(len(trace), most)
    if form.timeline:
        _check_size(count, force)
    bar = bars.progress_bar(count, path.name) if progress else nullcontext(bars.no_progress)
    with replacing(path) as raw, bar as step:
        data = drawing.timeline(trace, most, shown) if form.timeline else first(trace, most)
        with GzipWriter(raw) if path.name.endswith(GZIP) else nullcontext(raw) as file:
            write(data, file, step, **more)
    if trace.samples and path.suffix in sample_rows.FORMATS:
        sample_rows.write(trace.samples, sample_rows.beside(path))
    return count


def first(trace: TraceData, limit: int | None) -> TraceData:
    """The first records by time, with a problem that counts the rest."""
    from . import timeline

    part, limited = timeline.first(trace, limit)
    return replace(part, problems=(*limited, *part.problems)) if limited else part


def _check_size(slices: int, force: bool) -> None:
    if slices > MAX_SLICES and not force:
        raise UsageError(
            f"{slices:,} slices exceed what viewers can open ({MAX_SLICES:,}): narrow the trace with "
            "trace.filter(...), pass limit=, or write all with force=True"
        )
    if slices > MANY_SLICES:
        about = f"{slices:,} slices take a viewer about {slices // 300_000} s to open"
        warnings.warn(f"{about}; narrow them with trace.filter(...) or limit=", stacklevel=4)


def check(path: str | os.PathLike[str]) -> tuple[Format, Callable[..., None]]:
    """Check that a file can be exported, before any work is done.

    Args:
        path: the file to write.

    Returns:
        The format of its suffix, and the function that writes it.

    Raises:
        UsageError: unknown suffix, or the path cannot be written.
        MissingError: the format needs a package that is not installed.
    """
    path = writable(path)
    if not os.access(target(path).parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise UsageError(f"{str(path)!r} is not writable: give another folder or name")
    for suffix, form in FORMATS.items():
        for name in form.suffixes(suffix):
            if path.name.endswith(name) and path.name != name:
                module = import_module(form.module)
                getattr(module, "needs", lambda: None)()
                return form, getattr(module, form.function)
    raise UsageError(f"{path.name!r}: unknown suffix; expected one of {', '.join(suffixes())}")
