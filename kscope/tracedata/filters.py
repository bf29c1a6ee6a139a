"""Filtering: the records of a trace that match names, numbers and a time window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from .data import T
from .kernel_names import hashed, kernel_names, of_kernels

_OF_WARPS = ("launch", "block", "warp", "lane", "sm", "device")


def select(trace: T, given: Mapping[str, Any]) -> T:
    """The records that match all given arguments of Trace.filter()."""
    warps = trace.warps
    rows = np.ones(len(warps), bool)
    if "kernel" in given:
        rows &= _matching("kernel", given["kernel"], trace.kernels, kernel_names(trace), of_kernels(trace))[
            warps.kernel
        ]
    for name in _OF_WARPS:
        if name in given:
            column = np.array(trace.devices, np.int64)[warps.device] if name == "device" else getattr(warps, name)
            rows &= _members(name, given[name], column)
    mask = rows[trace.track]
    if "region" in given:
        mask &= _matching("region", given["region"], [found.name for found in trace.regions])[trace.region]
    if "track" in given:
        mask &= np.append(_matching("track", given["track"], trace.user_tracks), False)[trace.user_track]
    if "time" in given:
        first, last = given["time"]
        mask &= (trace.start_ns <= last) & (trace.start_ns + np.nan_to_num(trace.dur_ns) >= first)
    if "where" in given:
        where = given["where"]
        if where.shape != mask.shape:
            raise UsageError(f"filter(where=...): a mask of shape {where.shape}, expected {mask.shape}: one per record")
        mask &= where
    return trace.take(np.flatnonzero(mask))


def _matching(
    what: str, patterns: str | Iterable[str], names: Iterable[str], shown: Iterable[str] = (),
    numbers: Iterable[int] = (),
) -> npt.NDArray[np.bool_]:  # fmt: skip
    """(names,) bool: which names the patterns match. shown: the names in tables. numbers: hashes."""
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    names, numbers = list(names), list(numbers)
    shown = list(shown) or names
    found = np.zeros(len(names), bool)
    for pattern in patterns:
        pairs = zip(names, shown, strict=True)
        hits = np.array([pattern in pair or fnmatchcase(pair[0], pattern) for pair in pairs], bool)
        if (number := hashed(pattern)) is not None and numbers:
            hits |= np.array([number == one for one in numbers], bool)
        if not hits.any():
            known = ", ".join(sorted({*shown} - {"?"})[:20]) or "none"
            raise UsageError(f"filter({what}={pattern!r}): no such {what}; this trace has {known}")
        found |= hits
    return found


def _members(what: str, members: int | range | Iterable[int], column: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if isinstance(members, range):
        start, stop, step = members.start, members.stop, members.step
        return np.asarray((column >= start) & (column < stop) & ((column.astype(np.int64) - start) % step == 0))
    values = [members] if isinstance(members, (int, np.integer)) else list(members)
    if not all(isinstance(value, (int, np.integer)) for value in values):
        raise UsageError(f"filter({what}={members!r}): expected a number, a range or several numbers")
    return np.isin(column, values)
