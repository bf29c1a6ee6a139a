"""The trace's columns as a pandas.DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import MissingError
from ..tracedata.data import COLUMNS, KIND_NAMES, NO_TRACK, TraceData
from ..util.portable import clean
from ..util.text import install_command


def frame(trace: TraceData) -> Any:
    """Convert a trace to pandas.

    Args:
        trace: the trace.

    Returns:
        A DataFrame with one row per record; names are categoricals.

    Raises:
        MissingError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise MissingError(f"to_pandas() needs pandas: {install_command('pandas')}") from error
    data: dict[str, Any] = {name: getattr(trace, name) for name in COLUMNS}
    texts: dict[str, Iterable[str | None]] = {
        "kind": KIND_NAMES,
        "user_track": trace.user_tracks,
        "region": trace.region_names(),
        "kernel": trace.kernels,
        "source": [region.where for region in trace.regions],
    }
    for column, names in texts.items():
        categories, codes = _categories(names, ordered=column in ("region", "kernel", "source"))
        data[column] = pandas.Categorical.from_codes(codes[data[column]], categories)
    return pandas.DataFrame(data)


def _categories(names: Iterable[str | None], *, ordered: bool) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Unique names, sorted if `ordered`, and the index of each name (-1 for None), followed by NO_TRACK."""
    texts = [name if name is None else clean(name) for name in names]
    known = [name for name in texts if name is not None]
    index = {name: number for number, name in enumerate(dict.fromkeys(sorted(known) if ordered else known))}
    return list(index), np.array([*(-1 if name is None else index[name] for name in texts), NO_TRACK], np.int64)
