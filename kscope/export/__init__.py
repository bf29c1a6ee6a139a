"""Files for viewers and tables, by suffix.

What lives here: the table of formats, and the bounds on what is written. What does not: any format.
A format is a module with ``write(timeline, file, step)`` or ``write(trace, file, step)``, where `file`
takes bytes and ``step(count)`` tells that so many more records are done. One that needs a package has
``needs()``, which raises MissingError where that is not installed.
"""

from __future__ import annotations

import os
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..util.atomic_files import replacing

if TYPE_CHECKING:
    from ..tracedata.data import TraceData

LIMIT = 2_000_000
"""Slices of a timeline unless limit= says otherwise: a viewer opens about 0.3 million per second."""
SLOW, HUGE = 5_000_000, 15_000_000
PACKED = ".gz"


@dataclass(frozen=True)
class Format:
    """module: of this package. what: in words. timeline: it draws a Timeline, which takes options and is
    bounded; else it takes the Trace. packed: it may be written as .gz."""

    module: str
    what: str
    timeline: bool = False
    packed: bool = False

    def names(self, suffix: str) -> tuple[str, ...]:
        """The suffix as files may have it."""
        return (suffix, suffix + PACKED) if self.packed else (suffix,)


FORMATS: dict[str, Format] = {
    ".pftrace": Format("pftrace", "timeline for Perfetto", timeline=True, packed=True),
    ".speedscope.json": Format("speedscope", "flame graph for speedscope.app", packed=True),
    ".json": Format("chrome", "timeline in Chrome's trace event format", timeline=True, packed=True),
    ".parquet": Format("parquet", "all columns, for pandas, Polars, DuckDB (needs pyarrow)"),
    ".arrow": Format("arrow", "all columns, to be mapped into memory (needs pyarrow)"),
    ".feather": Format("feather", "all columns (needs pyarrow)"),
    ".csv": Format("csvrows", "all columns, for spreadsheets", packed=True),
    ".hatchet": Format("hatchet", "call tree for proton-viewer: cycles, normalized_cycles, time"),
    ".folded": Format("folded", "stacks for flamegraph.pl and inferno", packed=True),
    ".html": Format("..report", "page for any browser, with all of it inside"),
}
"""Suffix -> format; of two suffixes that fit a name, the first one counts."""


def suffixes() -> list[str]:
    """Every suffix that can be written."""
    return [name for suffix, form in FORMATS.items() for name in form.names(suffix)]


def export(
    trace: TraceData,
    path: str | os.PathLike[str],
    *,
    limit: int | str | None = "auto",
    force: bool = False,
    progress: bool = False,
    **options: Any,
) -> int:
    """Write the trace in the format of the path's suffix, atomically; returns how many records were written.

    limit: at most that many records, the first by time; what was left out is told in the file. None =
    all; "auto" = 2 million for timelines, else all. force: allow timelines of more than 15 million.
    progress: show a bar on stderr. options: of timelines, see view.py. Raises UsageError for an unknown
    suffix (lists the known ones), a path that cannot be written, an option that cannot be, or too much
    to open; MissingError where a format needs a package that is not installed. Warns above 5 million.
    """
    from ..util import progress as bars
    from ..util.gz import GzipWriter
    from . import timeline as drawing  # needs the columns; the table above does not
    from .view import view

    path = Path(path)
    form, module = check(path)
    if options and not form.timeline:
        raise UsageError(f"export({path.name!r}, {next(iter(options))}=...): only timelines take that option")
    shown = view(**options)
    most = (LIMIT if form.timeline else None) if limit == "auto" else limit
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise UsageError(f"export(limit={limit!r}): expected a number of slices, or None for all")
    count = len(trace) if most is None else min(len(trace), most)
    if form.timeline:
        _bounded(count, force)
    with (
        replacing(path) as raw,
        bars.progress_bar(count, path.name) if progress else nullcontext(bars.no_progress) as step,
    ):
        data = drawing.timeline(trace, most, shown) if form.timeline else _first(trace, most)
        with GzipWriter(raw) if path.name.endswith(PACKED) else nullcontext(raw) as file:
            module.write(data, file, step)
    return count


def _first(trace: TraceData, limit: int | None) -> TraceData:
    """The first records by time; what was left out is among the problems."""
    from .timeline import first

    part, limited = first(trace, limit)
    return replace(part, problems=(*limited, *part.problems)) if limited else part


def _bounded(slices: int, force: bool) -> None:
    if slices > HUGE and not force:
        raise UsageError(
            f"{slices:,} slices are more than a viewer opens ({HUGE:,}): narrow the trace with trace.filter(...), "
            "give limit=, or write them all with force=True"
        )
    if slices > SLOW:
        about = f"{slices:,} slices take a viewer about {slices // 300_000} s to open"
        warnings.warn(f"{about}; trace.filter(...) or limit= narrow them", stacklevel=4)


def check(path: str | os.PathLike[str]) -> tuple[Format, Any]:
    """The format of a path's suffix, and its module. Raises UsageError where the path cannot be written,
    MissingError where a package is missing that the format needs."""
    path = Path(path)
    if not path.parent.is_dir():
        raise UsageError(f"{str(path)!r}: the folder {str(path.parent)!r} does not exist; create it first")
    if path.is_dir():
        raise UsageError(f"{str(path)!r} is a folder: give the name of a file")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise UsageError(f"{str(path)!r} may not be written: give another folder or name")
    for suffix, form in FORMATS.items():
        for name in form.names(suffix):
            if path.name.endswith(name) and path.name != name:
                module = import_module(form.module if form.module.startswith(".") else f".{form.module}", __name__)
                getattr(module, "needs", lambda: None)()
                return form, module
    raise UsageError(f"{path.name!r}: no format has that suffix; known ones are {', '.join(suffixes())}")
