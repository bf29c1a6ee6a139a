"""The trace's columns as a pandas.DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..tracedata.data import COLUMNS, KIND_NAMES, NO_TRACK, TraceData
from ..tracedata.values import EXACT_VALUE
from ..util.arrays import Int64
from ..util.json_values import clean
from ..util.packages import import_pandas


def frame(trace: TraceData) -> Any:
    """Convert a trace to pandas.

    Args:
        trace: the trace.

    Returns:
        A DataFrame with one row per record; names are categoricals, and missing where they are unknown.

    Raises:
        MissingError: pandas is not installed.
    """
    pandas = import_pandas("to_pandas()")
    names: dict[str, tuple[Sequence[str | None], Any]] = {
        "kernel": (trace.kernels, trace.kernel),
        "region": ([one.name if one.known or one.name != "?" else None for one in trace.regions], trace.region),
        "kind": ((None, *KIND_NAMES[1:]), trace.kind),
        "track": ((*trace.user_tracks, None), trace.user_track),  # NO_TRACK is the last
        "source": ([one.where for one in trace.regions], trace.region),
    }
    data: dict[str, Any] = {}
    for column in COLUMNS:
        if column in names:
            texts, index = names[column]
            categories, codes = _categories(texts, ordered=column in ("kernel", "region", "source"))
            data[column] = pandas.Categorical.from_codes(codes[index], categories)
        elif column.startswith("block_"):
            data[column] = trace.warps.block_xyz[trace.track, "xyz".index(column[-1])]
        else:
            data[column] = trace.track if column == "warp_row" else getattr(trace, column)
    if trace.integers is not None:
        integers, known = trace.integers.column()
        data[EXACT_VALUE] = pandas.arrays.IntegerArray(integers.copy(), ~known)
    return pandas.DataFrame(data)


def _categories(names: Sequence[str | None], *, ordered: bool) -> tuple[list[str], Int64]:
    """Unique names, sorted if `ordered`, and the index of each name; NO_TRACK, pandas' missing value, for None."""
    texts = [None if name is None else clean(name) for name in names]
    known = [text for text in texts if text is not None]
    index = {name: number for number, name in enumerate(dict.fromkeys(sorted(known) if ordered else known))}
    return list(index), np.array([NO_TRACK if text is None else index[text] for text in texts], np.int64)
