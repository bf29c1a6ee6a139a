"""Files for viewers, by suffix.

What lives here: the table of formats, and the bounds on what is written. What does not: any format.
A format is a module with ``write(timeline: Timeline, file: BinaryIO) -> None``.
"""

from __future__ import annotations

import gzip
import os
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    from ..trace import Trace

FORMATS: dict[str, str] = {".pftrace": "pftrace", ".json": "chrome", ".json.gz": "chrome"}
"""Suffix -> module of this package."""

LIMIT = 2_000_000
"""Slices written unless limit= says otherwise: a viewer opens about 0.3 million per second."""
SLOW, HUGE = 5_000_000, 15_000_000


def export(trace: Trace, path: str | os.PathLike[str], *, limit: int | None = LIMIT, force: bool = False) -> None:
    """Write the trace in the format of the path's suffix, atomically.

    limit: at most that many records, the first by time; what was left out is told in the file. None =
    all. force: allow more than 15 million. Raises UsageError for an unknown suffix (lists the known
    ones), a missing folder, or too much to open. Warns above 5 million.
    """
    from .timeline import timeline  # needs the columns; the table above does not

    path = Path(path)
    module = check(path)
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise UsageError(f"export(limit={limit!r}): expected a number of slices, or None for all")
    slices = min(len(trace), limit) if limit is not None else len(trace)
    if slices > HUGE and not force:
        raise UsageError(
            f"{slices:,} slices are more than a viewer opens ({HUGE:,}): narrow the trace with trace.filter(...), "
            "give limit=, or write them all with force=True"
        )
    if slices > SLOW:
        about = f"{slices:,} slices take a viewer about {slices // 300_000} s to open"
        warnings.warn(f"{about}; trace.filter(...) or limit= narrow them", stacklevel=3)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as raw:
            if path.name.endswith(".gz"):
                with gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
                    module.write(timeline(trace, limit), packed)
            else:
                module.write(timeline(trace, limit), raw)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def check(path: Path) -> Any:
    """The module that writes this path's suffix. Raises UsageError where it cannot be written."""
    if not path.parent.is_dir():
        raise UsageError(f"{str(path)!r}: the folder {str(path.parent)!r} does not exist; create it first")
    if path.is_dir():
        raise UsageError(f"{str(path)!r} is a folder: give the name of a file")
    for suffix, name in FORMATS.items():
        if path.name.endswith(suffix) and path.name != suffix:
            return import_module(f".{name}", __name__)
    raise UsageError(f"{path.name!r}: no format has that suffix; known ones are {', '.join(FORMATS)}")
