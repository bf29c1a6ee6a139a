"""kscope.merge()."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..trace import Trace

if TYPE_CHECKING:
    from .torch import Merged


def merge(trace: Trace, torch: str | os.PathLike[str]) -> Merged:
    """Put a capture and a trace of torch.profiler on one axis.

    Args:
        trace: a whole capture's trace.
        torch: the file that p.export_chrome_trace() wrote in the same run, .json or .json.gz.

    Returns:
        Both; `trace` has `calls`, `bounds` says how exact the axis is, and write(path) writes one timeline.

    Raises:
        UsageError: they do not list the same launches, or their times contradict each other.
        FormatError: not a trace of torch.profiler.
        OSError: it cannot be read.
    """
    from .kineto import read  # loaded on first use
    from .torch import beside

    return beside(trace, read(Path(torch)))
