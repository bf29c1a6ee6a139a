"""Transforms: functions from a Trace to a Trace, to be chained or passed to profile(then=...).

rename     regions by name or pattern, or by the value of their records
regroup    regions on tracks
compose    several transforms as one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ..capture.layout import Kind
from ..errors import UsageError
from ..util.text import nearest, some
from .data import T
from .region import MOST_REGIONS, Region

ByValue = Sequence[str] | Mapping[int, str] | Callable[[float], str]
Renaming = Mapping[str, "str | ByValue"] | Callable[[str], str]
_VALUES = (Kind.SPAN_VALUE, Kind.INSTANT_VALUE)


def rename(trace: T, names: Renaming) -> T:
    """Rename regions.

    Args:
        trace: the trace.
        names: {old: new}, where old may be a pattern such as "ld_*"; or a function from old to new. Regions that get
            the same name are one region in tables. If new is a list, a dict or a function of numbers, it names the
            records of `old` by their value: {"task": ["load", "mma"]} turns each task with value=1 into a region mma.
            Values without a name become "task 7".

    Returns:
        A new trace.

    Raises:
        UsageError: the trace has no such region, or its records have no value.
    """
    if not isinstance(names, Mapping):
        return replace(trace, regions=tuple(replace(one, name=_text(names(one.name))) for one in trace.regions))
    found = list(trace.regions)
    for old, new in names.items():
        numbers = _matching("rename", old, trace.regions)
        if isinstance(new, str):
            for number in numbers:
                found[number] = replace(trace.regions[number], name=new)
    made = replace(trace, regions=tuple(found))
    for old, new in names.items():
        if not isinstance(new, str):
            made = _by_value(made, old, _matching("rename", old, trace.regions), new)
    return made


def regroup(trace: T, tracks: Mapping[str, str | None] | Callable[[str], str | None]) -> T:
    """Put regions on tracks, as track= in the kernel does.

    Args:
        trace: the trace.
        tracks: {region: track}, where region may be a pattern; or a function from the region's name. None removes the
            track. ``regroup(trace, lambda name: name)`` gives each region a row.

    Returns:
        A new trace.

    Raises:
        UsageError: the trace has no such region.
    """
    if not isinstance(tracks, Mapping):
        return replace(trace, regions=tuple(replace(one, track=tracks(one.name)) for one in trace.regions))
    found = list(trace.regions)
    for region, track in tracks.items():
        for number in _matching("regroup", region, trace.regions):
            found[number] = replace(found[number], track=track)
    return replace(trace, regions=tuple(found))


def compose(*transforms: Callable[[T], T]) -> Callable[[T], T]:
    """One transform that applies several.

    Args:
        *transforms: applied first to last.
    """

    def composed(trace: T) -> T:
        for one in transforms:
            trace = one(trace)
        return trace

    return composed


def _matching(what: str, pattern: str, regions: Sequence[Region]) -> list[int]:
    found = [number for number, one in enumerate(regions) if one.name == pattern or fnmatchcase(one.name, pattern)]
    if not found:
        known = sorted({one.name for one in regions} - {"?"})
        raise UsageError(f"{what}({pattern!r}): no such region; this trace has {some(known)}{nearest(pattern, known)}")
    return found


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise UsageError(f"rename(): the function returned {name!r}, expected a name")
    return name


def _by_value(trace: T, old: str, numbers: Sequence[int], names: ByValue) -> T:
    """One region for each value of the records of these regions."""
    regions, types, region = list(trace.regions), [trace.types], trace.region.copy()
    valued = [number for number in numbers if trace.regions[number].kind in _VALUES]
    if not valued:
        raise UsageError(f"rename({old!r}): its records have no value; add value= to the mark, or pass one name")
    value = trace.value
    for number in valued:
        one = trace.regions[number]
        at = np.flatnonzero(trace.region == number)
        distinct, which = np.unique(value[at], return_inverse=True)
        if len(regions) + len(distinct) > MOST_REGIONS:
            raise UsageError(f"rename({old!r}): {len(distinct):,} different values are too many regions")
        made = [_called(one.name, float(each), names) for each in distinct.tolist()]
        region[at] = (len(regions) + which.ravel()).astype(np.uint16)
        regions += [replace(one, name=name) for name in made]
        types.append(np.repeat(trace.types[:, number : number + 1], len(made), axis=1))
    return replace(trace, region=region, regions=tuple(regions), types=np.concatenate(types, axis=1))


def _called(name: str, value: float, names: ByValue) -> str:
    number = int(value) if value.is_integer() else value
    if callable(names):
        return _text(names(number))
    known = names if isinstance(names, Mapping) else dict(enumerate(names))
    return known.get(number, f"{name} {number}")  # type: ignore[arg-type]  # a fraction is not in it
