"""The known roles of warps: the name given with kscope.role(), else the compiler's partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..capture.model import RoleMeta
from ..marks.names import ROLE_TRACK
from ..marks.strategies import MAX_WARPS
from ..tracedata.data import TraceData
from ..util.arrays import Int64
from ..util.runs import group_equal, heads


def with_roles(trace: TraceData, partitions: Sequence[tuple[RoleMeta, ...]]) -> TraceData:
    """The trace with roles in Warps.role, and without the instants that name them.

    Args:
        trace: the trace.
        partitions: the compiler's, by index of the kernel.
    """
    named = np.array([region.track == ROLE_TRACK for region in trace.regions], bool)
    if not named.any() and not any(partitions):
        return trace
    marks = [one.name for one, role_mark in zip(trace.regions, named, strict=True) if role_mark]
    names = tuple(dict.fromkeys([*marks, *(role.name for roles in partitions for role in roles)]))
    number = {name: index for index, name in enumerate(names)}
    trace, role = _taken_out(trace, named, number) if named.any() else (trace, np.full(len(trace.warps), -1))
    warps = trace.warps
    place = warps.kernel * MAX_WARPS + warps.warp
    role = np.where(role >= 0, role, _of_number(role, place))
    compiled = np.full((max(1, len(partitions)), MAX_WARPS), -1)
    for kernel, roles in enumerate(partitions):
        for one in roles:
            compiled[kernel, list(one.warps)] = number[one.name]
    role = np.where(role >= 0, role, compiled.ravel()[place])
    used, index = np.unique(role[role >= 0], return_inverse=True)
    role[role >= 0] = index
    return replace(
        trace, warps=replace(warps, role=role.astype(np.int16)), role_names=tuple(names[at] for at in used.tolist())
    )


def _of_number(role: Int64, place: Int64) -> Int64:
    """(w,) the role of another warp of the same kernel and number, of several the first; -1 without."""
    known = np.flatnonzero(role >= 0)
    _, _, of = group_equal(place)
    shared = np.full(int(of.max(initial=-1)) + 1, -1)
    shared[of[known[::-1]]] = role[known[::-1]]
    return shared[of]


def _taken_out(trace: TraceData, named: npt.NDArray[np.bool_], number: dict[str, int]) -> tuple[TraceData, Int64]:
    """The trace without the instants of the regions that name roles, and (w,) the last role that each warp names; -1
    without."""
    of_role = named[trace.region]
    at = np.flatnonzero(of_role)
    gone = np.bincount(trace.track[at], minlength=len(trace.warps))
    last = np.append(heads(trace.track[at])[1:], len(at)) - 1 if len(at) else at  # records are sorted by end
    code = np.array([number.get(one.name, -1) for one in trace.regions])
    role = np.full(len(trace.warps), -1)
    role[trace.track[at[last]]] = code[trace.region[at[last]]]
    kept = ~of_role
    place = np.cumsum(~named) - 1
    columns: dict[str, Any] = {
        name: getattr(trace, name)[kept] for name in ("track", "start_ticks", "dur_cycles", "bits")
    }
    warps = trace.warps
    rest = replace(
        trace,
        **columns,
        region=place[trace.region[kept]].astype(np.uint16),
        regions=tuple(one for one, role_mark in zip(trace.regions, named, strict=True) if not role_mark),
        types=trace.types[:, ~named],
        warps=replace(warps, records=warps.records - gone, written=warps.written - gone),
    )
    return rest, role
