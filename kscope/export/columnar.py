"""The trace as Arrow tables in memory, and as Parquet, Arrow and Feather files, through pyarrow. Rows are sorted by
launch; a Parquet row group holds whole launches, so readers can skip groups by launch, region or time.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import orjson

from ..tracedata.data import COLUMNS, KIND_NAMES, TraceData
from ..tracedata.info import info
from ..tracedata.values import EXACT_VALUE
from ..util.arrays import Int64
from ..util.json_values import clean
from ..util.packages import needed
from ..util.parallel import map_ahead
from ..util.progress import Step

GROUP, MOST = 1 << 17, 1 << 20
"""Minimum (except the last) and maximum rows of a row group."""
_LEVEL = 3
_DELTA = ("start_ticks", "dur_cycles", "block", "block_x", "block_y", "block_z", "warp_row")
_SPLIT = ("start_ns", "dur_ns")
_TEXTS = ("kernel", "region", "kind", "track", "source")


def pyarrow() -> Any:
    """Import pyarrow.

    Raises:
        MissingError: it is not installed.
    """
    package = needed("pyarrow", "Arrow, Feather and Parquet need pyarrow", "arrow")
    import_module("pyarrow.parquet")  # submodules are not imported by the package
    import_module("pyarrow.ipc")
    return package


needs = pyarrow


def table(trace: TraceData) -> Any:
    """Convert a trace to Arrow.

    Args:
        trace: the trace.

    Returns:
        A pyarrow.Table with one row per record, in the trace's order.

    Raises:
        MissingError: pyarrow is not installed.
    """
    arrow = pyarrow()
    columns = _Columns(trace, arrow)
    return arrow.Table.from_batches([columns.batch(slice(0, len(trace)))], columns.schema)


def batches(trace: TraceData) -> tuple[Any, Iterator[Any]]:
    """(schema, record batches) sorted by launch; a batch holds whole launches, or part of a large one."""
    columns = _Columns(trace, pyarrow())
    launch = trace.launch
    order: Int64 | None = None
    if (launch[1:] < launch[:-1]).any():
        order = np.argsort(launch.astype(np.uint16) if len(trace.launches) <= 1 << 16 else launch, kind="stable")
    ends = np.cumsum(np.bincount(launch, minlength=len(trace.launches)))
    parts = _groups(ends.tolist())
    return columns.schema, map_ahead(lambda part: columns.batch(part if order is None else order[part]), parts)


def _groups(ends: list[int]) -> list[slice]:
    """The row groups, from the launches' last rows."""
    groups, start = [], 0
    for end in ends:
        if end - start >= GROUP or end == ends[-1]:
            groups += [slice(a, min(a + MOST, end)) for a in range(start, end, MOST)]
            start = end
    return groups


class _Columns:
    """Schema and dictionaries shared by all batches."""

    def __init__(self, trace: TraceData, arrow: Any) -> None:
        self._trace, self._arrow = trace, arrow
        self._of_region = trace.region_tracks()
        self._integers = None if trace.integers is None else trace.integers.column()
        self._placed = np.array([bool(region.where) for region in trace.regions])
        names = {
            "kernel": [clean(name) for name in trace.kernels],
            "region": [clean(region.name) for region in trace.regions],
            "kind": KIND_NAMES,
            "track": [clean(name) for name in trace.user_tracks],
            "source": [clean(region.where or "") for region in trace.regions],
        }
        # a span and an instant may share a name; dictionary entries must be unique
        self._texts: dict[str, tuple[Any, npt.NDArray[np.int32]]] = {}
        for name, texts in names.items():
            distinct, codes = np.unique(np.array(texts, object), return_inverse=True)
            self._texts[name] = (arrow.array(distinct.tolist(), arrow.string()), codes.astype(np.int32))
        empty = self.batch(slice(0, 0)).schema
        self.schema = empty.with_metadata({"kscope": orjson.dumps(_about(trace)).decode()})

    def batch(self, rows: slice | Int64) -> Any:
        """A RecordBatch of the rows."""
        trace, arrow = self._trace, self._arrow
        track = trace.track[rows]
        warps = trace.warps
        ticks, cycles, even = trace.start_ticks[rows], trace.dur_cycles[rows], trace.even
        pace = warps.tick_ns[track]
        columns: dict[str, Any] = {
            name: getattr(warps, name)[track] for name in ("kernel", "launch", "block", "warp", "lane", "sm")
        }
        columns |= {name: getattr(trace, name)[rows] for name in ("region", "kind", "depth", "value")}
        columns["start_ns"] = (even.start_ticks[rows] - warps.first_tick[track]) * pace + warps.start_ns[track]
        columns["dur_ns"] = np.where(cycles < 0, np.nan, even.dur_cycles[rows] * pace)
        user = self._of_region[trace.region[rows]]
        columns |= {f"block_{axis}": warps.block_xyz[track, at] for at, axis in enumerate("xyz")}
        columns |= {"track": np.maximum(user, 0), "warp_row": track, "start_ticks": ticks, "dur_cycles": cycles}
        columns["source"] = columns["region"]
        arrays = []
        for name in COLUMNS:
            if name in _TEXTS:
                texts, codes = self._texts[name]
                null = {"track": user < 0, "source": ~self._placed[columns["source"]]}.get(name)
                index = codes[columns[name]] if len(codes) else np.zeros(len(track), np.int32)
                arrays.append(arrow.DictionaryArray.from_arrays(arrow.array(index, mask=null), texts))
            else:
                # NaN becomes null
                arrays.append(arrow.array(columns[name], from_pandas=name in ("value", "dur_ns")))
        names: list[str] = list(COLUMNS)
        if self._integers is not None:
            integers, known = (column[rows] for column in self._integers)
            names.append(EXACT_VALUE)
            arrays.append(arrow.array(integers, mask=~known))
        return arrow.RecordBatch.from_arrays(arrays, names=names)


def _about(trace: TraceData) -> dict[str, Any]:
    """The files' metadata under the key `kscope`."""
    return {
        "recorded": info(trace).to_dict(),
        "origin_unix_ns": trace.origin,
        "tick_ns": trace.tick_ns,
        "devices": list(trace.devices),
        "launches": [
            {"kernel": clean(one.kernel), "device": one.device, "grid_id": one.grid_id, "replay": one.replay,
             "grid": list(one.grid)} for one in trace.launches
        ],
        "problems": [one.as_dict() for one in trace.problems],
    }  # fmt: skip


def write_parquet(trace: TraceData, file: BinaryIO, step: Step) -> None:
    """Write Parquet: zstd, delta-encoded integers, dictionary-encoded names."""
    parquet = pyarrow().parquet
    schema, parts = batches(trace)
    encoding = {**dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"), **dict.fromkeys(_SPLIT, "BYTE_STREAM_SPLIT")}
    dictionary = [name for name in COLUMNS if name not in encoding]
    with parquet.ParquetWriter(
        file, schema, compression="zstd", compression_level=_LEVEL, use_dictionary=dictionary, column_encoding=encoding
    ) as writer:
        for part in parts:
            writer.write_batch(part, row_group_size=max(1, len(part)))
            step(len(part))


def write_feather(trace: TraceData, file: BinaryIO, step: Step) -> None:
    """Write an Arrow file, compressed with lz4, as pandas does."""
    write(trace, file, step, "lz4")


def write(trace: TraceData, file: BinaryIO, step: Step, compression: str | None = None) -> None:
    """Write an Arrow file; without compression it can be memory-mapped."""
    arrow = pyarrow()
    schema, parts = batches(trace)
    options = arrow.ipc.IpcWriteOptions(compression=compression)
    with arrow.ipc.new_file(file, schema, options=options) as writer:
        for part in parts:
            writer.write_batch(part)
            step(len(part))
