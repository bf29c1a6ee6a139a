"""Roles that kernels name with kscope.role(): instants on a reserved track, which become a column of the warps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..marks.grammar import ROLE_TRACK
from ..tracedata.data import TraceData
from ..util.runs import heads


def with_roles(trace: TraceData) -> TraceData:
    """The trace without the instants that name roles, and with the roles in Warps.role. Of several roles that a warp
    names, the last one counts."""
    named = np.array([region.track == ROLE_TRACK for region in trace.regions], bool)
    if not named.any():
        return trace
    of_role = named[trace.region]
    names = tuple(dict.fromkeys(one.name for one, role in zip(trace.regions, named, strict=True) if role))
    number = np.array([names.index(one.name) if one.name in names else -1 for one in trace.regions], np.int16)
    at = np.flatnonzero(of_role)
    role, gone = trace.warps.role.copy(), np.bincount(trace.track[at], minlength=len(trace.warps))
    last = np.append(heads(trace.track[at])[1:], len(at)) - 1 if len(at) else at  # records are sorted by end
    role[trace.track[at[last]]] = number[trace.region[at[last]]]
    kept = ~of_role
    place = np.cumsum(~named) - 1
    columns: dict[str, Any] = {
        name: getattr(trace, name)[kept] for name in ("track", "start_ticks", "dur_cycles", "bits")
    }
    warps = trace.warps
    return replace(
        trace,
        **columns,
        region=place[trace.region[kept]].astype(np.uint16),
        regions=tuple(one for one, role_mark in zip(trace.regions, named, strict=True) if not role_mark),
        types=trace.types[:, ~named],
        warps=replace(warps, role=role, records=warps.records - gone, written=warps.written - gone),
        role_names=names,
    )
