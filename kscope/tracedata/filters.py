"""Filtering: the records of a trace that match names, numbers and a time window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ..capture.blocks import BlockSelection, selections
from ..errors import UsageError
from ..util.text import nearest, number_ranges, some
from .data import T, TraceData
from .kernel_names import hashed, kernel_names, of_kernels
from .warps import Warps

_OF_WARPS = ("launch", "warp", "lane", "sm", "device")
_SHOWN = 8


def select(trace: T, given: Mapping[str, Any]) -> T:
    """The records that match all given arguments of Trace.filter()."""
    warps = trace.warps
    rows = np.ones(len(warps), bool)
    if "kernel" in given:
        kernels = _matching("kernel", given["kernel"], trace.kernels, kernel_names(trace), of_kernels(trace))
        rows &= kernels[warps.kernel]
    for name in _OF_WARPS:
        if name in given:
            column = np.array(trace.devices, np.int64)[warps.device] if name == "device" else getattr(warps, name)
            rows &= _members(name, given[name], column)
    if "block" in given:
        rows &= _blocks(warps, given["block"])
    mask = rows[trace.track]
    if "region" in given:
        mask &= _matching("region", given["region"], [found.name for found in trace.regions])[trace.region]
    if "track" in given:
        mask &= np.append(_matching("track", given["track"], trace.user_tracks), False)[trace.user_track]
    if "time" in given:
        mask &= _during(trace, given["time"])
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
    """(names,) bool: True for names that match the patterns. shown: the names in tables. numbers: hashes."""
    patterns = _several(what, patterns, str, "a name or several")
    names, numbers = list(names), list(numbers)
    shown = list(shown) or names
    found = np.zeros(len(names), bool)
    for pattern in patterns:
        pairs = zip(names, shown, strict=True)
        hits = np.array([pattern in pair or fnmatchcase(pair[0], pattern) for pair in pairs], bool)
        if (number := hashed(pattern)) is not None and numbers:
            hits |= np.array([number == one for one in numbers], bool)
        if not hits.any():
            known = sorted({*shown} - {"?"})
            has = f"which has {what} {some(known)}" if known else f"which has no {what}"
            raise UsageError(f"{what} {pattern or repr(pattern)}: not in this trace, {has}{nearest(pattern, known)}")
        found |= hits
    return found


def _members(what: str, members: object, column: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """(w,) bool: the rows with these numbers. A number that no row has, and a range without any, is an error."""
    parts = _several(what, members, (int, np.integer, range), "a number, a range or several of them")
    known: list[int] = np.unique(column).tolist()
    ranges = [part for part in parts if isinstance(part, range)]
    numbers = {int(part) for part in parts if not isinstance(part, range)}
    missing = [number_ranges(sorted(numbers.difference(known)), _SHOWN)] if numbers.difference(known) else []
    missing += [f"{one.start}-{one[-1]}" for one in ranges if not any(number in one for number in known)]
    if known and missing:
        has = number_ranges(known, _SHOWN)
        raise UsageError(f"{what} {', '.join(missing)}: not in this trace, which has {what} {has}")
    chosen = [number for number in known if number in numbers or any(number in one for one in ranges)]
    return np.isin(column, chosen)


def _several(what: str, given: object, kinds: type | tuple[type, ...], expected: str) -> list[Any]:
    """One or several of these types as a list; True is no number. Raises UsageError, also if there are none."""
    several = isinstance(given, Iterable) and not isinstance(given, (str, range))
    parts: list[Any] = list(cast("Iterable[Any]", given)) if several else [given]
    empty = any(isinstance(one, range) and not one for one in parts)
    if not parts or empty or not all(isinstance(one, kinds) and not isinstance(one, bool) for one in parts):
        raise UsageError(f"filter({what}={given!r}): expected {expected}")
    return parts


def _during(trace: TraceData, window: object) -> npt.NDArray[np.bool_]:
    """(n,) bool: the records that overlap a window. One outside the trace is an error."""
    match window:
        case (int() | float() | np.number() as first, int() | float() | np.number() as last) if first <= last:
            start, end = trace.start_ns, trace.start_ns + np.nan_to_num(trace.dur_ns)
        case _:
            raise UsageError(f"filter(time={window!r}): expected (first, last) in ns, such as (0, 5e3)")
    if len(trace) and (last < start.min() or first > end.max()):
        typed, has = (f"{a / 1e3:,.3f} to {b / 1e3:,.3f} us" for a, b in ((first, last), (start.min(), end.max())))
        raise UsageError(f"time {typed}: not in this trace, which has {has}")
    return (start <= last) & (end >= first)


def _blocks(warps: Warps, typed: BlockSelection) -> npt.NDArray[np.bool_]:
    """(w,) bool: the rows of these blocks. A selection that no row matches is an error."""
    selected = selections(np.unique(typed).tolist() if isinstance(typed, np.ndarray) else typed)
    numbers = np.array([one.number for one in selected if one.number is not None], np.int64)
    found = np.isin(warps.block, numbers)
    missing = [str(number) for number in np.setdiff1d(numbers, warps.block).tolist()]
    for one in selected:
        if one.number is None:
            hits = one.mask(warps.block, warps.block_xyz, warps.grid)
            found |= hits
            missing += [] if hits.any() else [str(one)]
    if len(warps) and missing:
        first = np.unique(warps.block, return_index=True)[1]
        shown = " ".join(warps.blocks(first[:_SHOWN]).strings())
        more = f" and {len(first) - _SHOWN:,} more" if len(first) > _SHOWN else ""
        raise UsageError(f"block {missing[0]}: not in this trace, which has block {shown}{more}")
    return found
