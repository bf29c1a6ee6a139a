"""Trace: the facade of a recording. Columns, filters, summary, exports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..capture.model import CaptureData
from ..tracedata import filters
from ..tracedata.data import TraceData

if TYPE_CHECKING:
    from ..analysis.summary import Summary


class Trace(TraceData):
    __doc__ = TraceData.__doc__

    def filter(
        self,
        *,
        kernel: str | Iterable[str] | None = None,
        region: str | Iterable[str] | None = None,
        track: str | Iterable[str] | None = None,
        launch: int | range | Iterable[int] | None = None,
        block: int | range | Iterable[int] | None = None,
        warp: int | range | Iterable[int] | None = None,
        lane: int | range | Iterable[int] | None = None,
        sm: int | range | Iterable[int] | None = None,
        device: int | range | Iterable[int] | None = None,
        time: tuple[float, float] | None = None,
        where: npt.NDArray[np.bool_] | None = None,
    ) -> Trace:
        """The records that match all conditions; `warps`, names and problems stay whole.

        Args:
            kernel, region: names or patterns such as "attn_*", one or several; kernels also by hash.
            track: names or patterns of user tracks.
            launch, block, warp, lane, sm, device: a number, a range, or several numbers.
            time: (first, last) in ns after `origin`; keeps records that overlap with it.
            where: (n,) bool, a mask.

        Returns:
            A new trace.

        Raises:
            UsageError: a name matches nothing, or a mask has another shape.
        """
        return filters.select(
            self, kernel=kernel, region=region, track=track, launch=launch, block=block, warp=warp, lane=lane, sm=sm,
            device=device, time=time, where=where,
        )  # fmt: skip

    def summary(self, by: str | Iterable[str] = (), *, roles: Mapping[str, Iterable[int]] | None = None) -> Summary:
        """Per kernel and region: count, total, share, self, mean, p50, p90, p99, min, max, imbalance, first and last
        start, idle; prints as a table.

        by: more keys: launch, role, sm, block, warp, lane, device; one, or several. roles: names of the roles of
        by="role" with their warps. Raises UsageError for another key.
        """
        from ..analysis.summary import summarise  # read only by those who ask for it

        return summarise(self, by, roles)

    def export(self, path: str | os.PathLike[str], **options: Any) -> int:
        """Write a file in the format of its suffix: .pftrace, .json, .parquet, .arrow, .csv, .hatchet and more
        (docs/outputs.md). Returns how many records were written.

        Options: limit="auto" (2 million slices in timelines, else all; None = all), force=False (more than
        15 million slices), progress=False (a bar on stderr); of timelines group="sm" ("block", "warp"),
        args=True (cycles, exact ns) and flows=[("load", "dot")] (arrows by value). Raises UsageError for an
        unknown suffix, a path that cannot be written, or too many slices; MissingError for a missing package.
        """
        from ..export import export  # read only by those who ask for it

        return export(self, path, **options)

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with one row per record and the columns of COLUMNS; names as categories.
        Raises MissingError without pandas."""
        from ..export.frame import frame  # read only by those who ask for it

        return frame(self)

    def to_arrow(self) -> Any:
        """A pyarrow.Table with one row per record and the columns of COLUMNS; names as dictionaries, what is not
        known as null, problems and launches in the metadata. Raises MissingError without pyarrow."""
        from ..export.columnar import table  # read only by those who ask for it

        return table(self)


def decode(capture: CaptureData) -> Trace:
    """Decode a capture. Never raises on damaged data: what is wrong with it is in `Trace.problems`."""
    from ..decoding.assemble import assemble  # the decoder is loaded on first use

    return Trace(**vars(assemble(capture)))
