"""kscope.merge()."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..trace import Trace

if TYPE_CHECKING:
    from .torch import Merged


def merge(
    trace: Trace, torch: str | os.PathLike[str] | None = None, *, nsys: str | os.PathLike[str] | None = None
) -> Merged:
    """Put a capture and another profiler's trace of the same run on one axis.

    Args:
        trace: a whole capture's trace.
        torch: the file written by export_chrome_trace() of torch.profiler, .json or .json.gz.
        nsys: a report of Nsight Systems, exported with `nsys export --type sqlite`.

    Returns:
        Both; `trace` has `calls`, `bounds` has the accuracy of the axis, and write(path) writes one timeline.

    Raises:
        UsageError: they do not list the same launches, their times contradict each other, or not one file was given.
        FormatError: not such a file.
        OSError: it cannot be read.
    """
    from . import kineto  # loaded on first use
    from . import nsys as reports
    from .torch import beside

    if torch is not None and nsys is None:
        return beside(trace, kineto.read(Path(torch)))
    if nsys is not None and torch is None:
        return beside(trace, reports.read(Path(nsys)))
    raise UsageError("merge(trace, ...): expected one file, torch= or nsys=")
