"""CSV (RFC 4180): the trace's columns, with names for kernels, regions and kinds. Times have three decimals; unknown
values are empty.
"""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from ..tracedata.data import COLUMNS, KIND_NAMES, TraceData
from ..tracedata.values import distinct
from ..util.arrays import Bytes
from ..util.json_values import clean
from ..util.parallel import chunks, map_ahead
from ..util.progress import Step
from . import text_cells
from .text_cells import NOTHING

_CHUNK = 1 << 14
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_QUOTED = (",", '"', "\n", "\r")
_FAR = 2.0**52


def write(trace: TraceData, file: BinaryIO, step: Step) -> None:
    """Write the file."""
    rows = _Rows(trace)
    file.write(",".join(COLUMNS).encode() + b"\r\n")
    parts = chunks(len(trace), text_cells.at_once(_CHUNK, rows.width))
    for part, data in zip(parts, map_ahead(rows.lines, parts), strict=True):
        file.write(data.data)
        step(part.stop - part.start)


def field(name: str) -> bytes:
    """A name as a CSV field.

    Names that a spreadsheet would evaluate as a formula get an apostrophe, and NULs, which CSV readers reject, become
    replacement characters.
    """
    name = clean(name).replace("\0", "\N{REPLACEMENT CHARACTER}")
    if name.startswith(_FORMULA):
        name = f"'{name}"
    if any(letter in name for letter in _QUOTED):
        name = '"' + name.replace('"', '""') + '"'
    return name.encode()


class _Rows:
    def __init__(self, trace: TraceData) -> None:
        self._trace = trace
        self._kernels = text_cells.TextTable([field(name) for name in trace.kernels], NOTHING)
        attributes = {"region": "name", "track": "track", "source": "where"}
        self._of_region = {
            column: text_cells.TextTable([field(getattr(region, name) or "") for region in trace.regions], NOTHING)
            for column, name in attributes.items()
        }
        self.width = self._kernels.width + sum(one.width for one in self._of_region.values())
        self._kinds = text_cells.table([kind.encode() for kind in KIND_NAMES], NOTHING)
        self._depth = trace.depth
        _ = trace.value, trace.integers, trace.even  # computed once, before the threads start

    def lines(self, part: slice) -> Bytes:
        """The lines of a slice of records."""
        trace, warps = self._trace, self._trace.warps
        track = trace.track[part]
        ticks, cycles, even = trace.start_ticks[part], trace.dur_cycles[part], trace.even
        pace = warps.tick_ns[track]
        start = (even.start_ticks[part] - warps.first_tick[track]) * pace + warps.start_ns[track]
        places = {name: getattr(warps, name)[track] for name in ("kernel", "launch", "block", "warp", "lane", "sm")}
        cells: dict[str, Bytes] = {name: _whole(places[name]) for name in ("launch", "block", "warp", "lane", "sm")}
        cells["kernel"] = self._kernels.take(places["kernel"])
        cells["kind"] = self._kinds.take(trace.kind[part], axis=0)
        cells |= {name: texts.take(trace.region[part]) for name, texts in self._of_region.items()}
        cells |= {f"block_{axis}": _whole(warps.block_xyz[track, at]) for at, axis in enumerate("xyz")}
        cells["warp_row"], cells["depth"] = _whole(track), _whole(self._depth[part])
        cells["start_ns"], cells["start_ticks"] = _thousandths(start), _whole(ticks)
        cells["dur_ns"], cells["dur_cycles"] = _thousandths(even.dur_cycles[part] * pace), _whole(cycles)
        cells["dur_ns"][cycles < 0] = 0  # NOTHING
        numbers, which = distinct(trace.value, trace.integers, part)
        cells["value"] = text_cells.table([_number(value) for value in numbers], NOTHING)[which]
        row: list[bytes | Bytes] = []
        for name in COLUMNS:
            row += [cells[name], b","]
        return text_cells.squeezed(text_cells.rows(len(ticks), *row[:-1], b"\r\n"))


def _whole(column: npt.NDArray[np.integer]) -> Bytes:
    return text_cells.whole(column.astype(np.int64), NOTHING)


def _thousandths(ns: npt.NDArray[np.float64]) -> Bytes:
    return text_cells.thousandths(np.rint(np.clip(ns, -_FAR, _FAR) * 1000).astype(np.int64), NOTHING)


def _number(value: float) -> bytes:
    if value != value:
        return b""
    if value in (float("inf"), float("-inf")):
        return b"inf" if value > 0 else b"-inf"
    return text_cells.number(value)
