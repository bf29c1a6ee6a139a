"""Roles of warps, such as producer and consumer: the one function that tables, the report and exports use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..errors import UsageError
from ..marks.strategies import MAX_WARPS
from ..tracedata.data import TraceData
from ..util.arrays import Int64
from ..util.runs import group_equal, numbered
from ..util.text import number_ranges

Named = Mapping[str, Iterable[int]]
NO_REGION = "no region"


@dataclass(frozen=True, eq=False)
class Roles:
    """The role of every row of Trace.warps.

    Attributes:
        code: (w,) int64, index into `names`.
        names: the roles; inferred ones with their warps: ``load (warp 0-3, inferred)``.
        inferred: True for inferred roles.
    """

    code: Int64
    names: tuple[str, ...]
    inferred: tuple[bool, ...]

    @property
    def known(self) -> tuple[str, ...]:
        """The names, empty where the role is inferred."""
        return tuple("" if guess else name for name, guess in zip(self.names, self.inferred, strict=True))


def roles(trace: TraceData, named: Named | None = None) -> Roles:
    """Find the role of every warp.

    A warp's role is the one that the caller names for its number, else the one in the trace (the kernel names it with
    ``kscope.role()``, or the compiler partitions the warps), else inferred: warps of a kernel that record the same
    regions share a role, named after the region with the longest total.

    Args:
        trace: the trace.
        named: warp numbers by the role's name; other warps have the role ``other``. None to use the roles that the
            trace knows, and to infer the rest.

    Raises:
        UsageError: a role without a valid warp number, or a warp with two roles.
    """
    if named:
        return _by_number(trace, named)
    code, names = _inferred(trace)
    if not trace.role_names:
        return Roles(code, names, (True,) * len(names))
    known = trace.warps.role
    code = np.where(known >= 0, known, code + len(trace.role_names))
    used = np.unique(code)
    every = (*trace.role_names, *names)
    place = numbered(used, len(every))
    kept = tuple(used.tolist())
    return Roles(place[code], tuple(every[at] for at in kept), tuple(at >= len(trace.role_names) for at in kept))


def _inferred(trace: TraceData) -> tuple[Int64, tuple[str, ...]]:
    """(code (w,), names) of the warps whose role is unknown, by the regions that warps of one kernel and number record;
    the code of others is undefined.
    """
    warps = trace.warps
    if not len(trace):
        return np.zeros(len(warps), np.int64), (NO_REGION,)
    place = warps.kernel * MAX_WARPS + warps.warp
    first, _, of = group_equal(place)
    places = place[first]
    size = len(places), len(trace.regions)
    cell = of[trace.track] * size[1] + trace.region
    weight = np.maximum(trace.dur_cycles, 0) + 1.0
    time = np.bincount(cell, weights=weight, minlength=size[0] * size[1]).reshape(size)
    found: dict[tuple[int, bytes], list[int]] = {}
    unknown = np.bincount(of[warps.role < 0], minlength=len(places)) > 0
    for row, number in enumerate(places.tolist()):
        if not unknown[row]:
            continue
        found.setdefault((number // MAX_WARPS, (time[row] > 0).tobytes()), []).append(row)
    code_of_place, names = np.zeros(len(places), np.int64), []
    for number, rows in enumerate(found.values()):
        code_of_place[rows] = number
        total = time[rows].sum(axis=0)
        most = trace.regions[int(total.argmax())].name if total.any() else NO_REGION
        names.append(f"{most} (warp {number_ranges((places[rows] % MAX_WARPS).tolist())}, inferred)")
    return code_of_place[of], tuple(names)


def _by_number(trace: TraceData, named: Named) -> Roles:
    names = (*named, "other")
    code = np.full(MAX_WARPS, len(named), np.int64)
    for number, (name, members) in enumerate(named.items()):
        warps = sorted({int(member) for member in members})
        if not warps or not 0 <= warps[0] <= warps[-1] < MAX_WARPS:
            raise UsageError(
                f"role {name!r}: expected warp numbers from 0 to {MAX_WARPS - 1}, such as {{{name!r}: [0, 1]}}"
            )
        taken = [warp for warp in warps if code[warp] != len(named)]
        if taken:
            raise UsageError(
                f"role {name!r}: warp {number_ranges(taken)} has the role {names[int(code[taken[0]])]!r} already"
            )
        code[warps] = number
    return Roles(code[trace.warps.warp.astype(np.int64)], names, (False,) * len(names))
