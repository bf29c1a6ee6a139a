"""Filtering: the records of a trace that match names, numbers and a time window."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from .data import T
from .kernel_names import hashed, kernel_names, of_kernels


def select(
    trace: T,
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
) -> T:
    """The records that match all conditions, see Trace.filter()."""
    warps = trace.warps
    rows = np.ones(len(warps), bool)
    if kernel is not None:
        rows &= _matching("kernel", kernel, trace.kernels, kernel_names(trace), of_kernels(trace))[warps.kernel]
    numbers = {"launch": launch, "block": block, "warp": warp, "lane": lane, "sm": sm}
    for name, members in numbers.items():
        if members is not None:
            rows &= _members(name, members, getattr(warps, name))
    if device is not None:
        rows &= _members("device", device, np.array(trace.devices, np.int64)[warps.device])
    mask = rows[trace.track]
    if region is not None:
        mask &= _matching("region", region, [found.name for found in trace.regions])[trace.region]
    if track is not None:
        matching = np.append(_matching("track", track, trace.user_tracks), False)
        mask &= matching[trace.user_track]
    if time is not None:
        first, last = time
        mask &= (trace.start_ns <= last) & (trace.start_ns + np.nan_to_num(trace.dur_ns) >= first)
    if where is not None:
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
    values = (
        [members]
        if isinstance(members, (int, np.integer))
        else list(members)
        if not isinstance(members, range)
        else members
    )
    if isinstance(values, list) and not all(isinstance(value, (int, np.integer)) for value in values):
        raise UsageError(f"filter({what}={members!r}): expected a number, a range or several numbers")
    if isinstance(values, range):
        start, stop, step = values.start, values.stop, values.step
        return np.asarray((column >= start) & (column < stop) & ((column.astype(np.int64) - start) % step == 0))
    return np.isin(column, values)
