"""Overlap: concurrent activity of the warps of a block, as a matrix of (role, region).

ns[a, b] = the time that a warp was in a while another warp of its block was in b, summed over both
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .. import native
from ..errors import UsageError
from ..tracedata.data import TraceData
from ..tracedata.info import info
from ..tracedata.kernel_names import kernel_names
from ..util.arrays import Float, Int64
from ..util.runs import fresh, group_equal, heads, order_by
from ..util.text import nearest, some
from .display import Shown
from .roles import Named
from .roles import roles as find_roles
from .segments import NONE, Cutter, Segments

Step = Callable[[int], object]
NO_REGION = "(no region)"
WAIT_WORDS = ("wait", "barrier", "acquire", "sync")
"""A region whose name contains one of these words is a wait, unless waits are given."""
_CELLS = 1 << 18
"""Edges times states counted at once."""


@dataclass(frozen=True, eq=False, repr=False)
class Overlap(Shown):
    """One kernel, with s states.

    Attributes:
        kernel: its name.
        states: (s,) pairs (role, region or NO_REGION).
        ns: (s, s) float64, symmetric.
        alive_ns: (s,) total time of the warps in each state.
        alone_ns: (s,) the part of it with no other recorded warp of the block alive.
        caveat: as in Info.
    """

    kernel: str
    states: tuple[tuple[str, str], ...]
    ns: Float
    alive_ns: Float
    alone_ns: Float
    caveat: str

    def beside(self, state: int, other_roles: bool = True) -> Float:
        """(s,) shares of the other warps' states while a warp was in `state`; they add up to 1, or are all 0.

        Args:
            state: index into `states`.
            other_roles: count only warps of other roles, if there are any.
        """
        row = self.ns[state].copy()
        if other_roles and len({role for role, _ in self.states}) > 1:
            row[[role == self.states[state][0] for role, _ in self.states]] = 0.0
        whole = float(row.sum())
        return np.asarray(row / whole) if whole > 0 else row


@dataclass(frozen=True)
class Wait:
    """Time of a role in a waiting region, or in no region.

    Attributes:
        kernel, role, region: names.
        warp_time_ns: of all its warps.
        share: of their total lifetime.
        beside: (role, region, share) of warps of other roles meanwhile, longest first.
    """

    kernel: str
    role: str
    region: str
    warp_time_ns: float
    share: float
    beside: tuple[tuple[str, str, float], ...]


def overlap(trace: TraceData, roles: Named | None = None, step: Step | None = None) -> tuple[Overlap, ...]:
    """One matrix per kernel, of the warps with records. It shows concurrency; critical_path.py finds causes.

    Args:
        trace: the trace.
        roles: warp numbers by name; by default, the names in kernels, or inferred ones.
        step: progress callback, called with the number of new records done.

    Raises:
        UsageError: a role without a valid warp number.
    """
    cutter, of_rows = Cutter(trace), find_roles(trace, roles)
    of_lane, role_names = of_rows.code, of_rows.names
    width = len(cutter.names) + 1  # states: role x region, no region first
    regions = [NO_REGION, *cutter.names]
    warps, rows = trace.warps, cutter.recorded
    rows = rows[order_by(warps.kernel[rows], warps.launch[rows], warps.block[rows])]
    block = np.cumsum(fresh(warps.kernel[rows], warps.launch[rows], warps.block[rows]), dtype=np.int64)

    def work(rows: Int64, pieces: Segments) -> _Matrix:
        places = np.cumsum(fresh(warps.launch[rows], warps.block[rows]), dtype=np.int64) - 1
        return _Matrix.of(of_lane[pieces.track] * width + (pieces.name - NONE), pieces, rows, places)

    found, kernels = [], kernel_names(trace)
    for first, last in pairwise([*heads(warps.kernel[rows]).tolist(), len(rows)]):
        total = _Matrix.nothing()
        for part, count in cutter.each(work, cutter.parts(rows[first:last], block[first:last])):
            total = total.plus(part)
            if step is not None:
                step(count)
        states = tuple((role_names[one // width], regions[one % width]) for one in total.states.tolist())
        kernel = kernels[int(warps.kernel[rows[first]])]
        found.append(Overlap(kernel, states, total.ns, total.alive_ns, total.alone_ns, info(trace).caveat))
    return tuple(found)


def waits(
    trace: TraceData, wait: str | Iterable[str] | None = None, roles: Named | None = None, step: Step | None = None
) -> tuple[Wait, ...]:
    """Waits of warps, longest first.

    Args:
        trace: the trace.
        wait: names of waiting regions; by default names that contain one of WAIT_WORDS. Time in no region counts too.
        roles, step: as for overlap().

    Raises:
        UsageError: no region has that name.
    """
    matrices = overlap(trace, roles, step)
    known = {region for one in matrices for _, region in one.states} - {NO_REGION}
    if wait is None:
        waiting = {name for name in known if any(word in name.lower() for word in WAIT_WORDS)}
    else:
        waiting = {wait} if isinstance(wait, str) else set(wait)
        for name in sorted(waiting - known):
            names = sorted(known)
            raise UsageError(f"wait={name!r}: no such region; this trace has {some(names)}{nearest(name, names)}")
    found = []
    for one in matrices:
        life: dict[str, float] = {}
        for (name, _), ns in zip(one.states, one.alive_ns.tolist(), strict=True):
            life[name] = life.get(name, 0.0) + ns
        for index, (name, region) in enumerate(one.states):
            if region not in waiting and region != NO_REGION:
                continue
            parts = one.beside(index)
            others = [(*one.states[at], float(parts[at])) for at in np.argsort(-parts).tolist() if parts[at] > 0]
            total = float(one.alive_ns[index])
            found.append(Wait(one.kernel, name, region, total, total / life[name], tuple(others)))
    return tuple(sorted(found, key=lambda row: (row.kernel, -row.warp_time_ns)))


@dataclass(frozen=True, eq=False)
class _Matrix:
    """The overlaps of some blocks of a kernel. states: (s,) numbers, ascending; the rest as in Overlap."""

    states: Int64
    ns: Float
    alive_ns: Float
    alone_ns: Float

    @staticmethod
    def nothing() -> _Matrix:
        """Without states."""
        return _Matrix(np.zeros(0, np.int64), np.zeros((0, 0)), np.zeros(0), np.zeros(0))

    @staticmethod
    def of(state: Int64, pieces: Segments, rows: Int64, block: Int64) -> _Matrix:
        """The overlaps of whole blocks.

        Args:
            state: (p,) number of the state of each piece.
            pieces: of `rows`, in their order.
            rows, block: (r,) rows of Trace.warps, and the number of each one's block, from 0 and ascending.
        """
        first, _, local = group_equal(state)
        total, alone = np.zeros((len(first), len(first))), np.zeros(len(first))
        bounds = np.append(heads(pieces.track), len(pieces)) if len(pieces) else np.zeros(1, np.int64)
        lives = block[np.isin(rows, pieces.track[bounds[:-1]])]  # damaged clocks may leave a warp without pieces
        if native.available():
            begin = np.searchsorted(lives, np.arange(int(block[-1]) + 2))
            native.call(
                "overlap", len(begin) - 1, begin, bounds, local, pieces.start, pieces.end, len(first), total, alone
            )
            total += total.T
        else:
            _sweep(np.repeat(lives, np.diff(bounds)), local, pieces.start, pieces.end, total, alone)
        alive = np.bincount(local, weights=pieces.ns, minlength=len(first)).astype(np.float64)
        return _Matrix(state[first], total, alive, alone)

    def plus(self, other: _Matrix) -> _Matrix:
        """The sum; states that only one of both has count as 0 in the other."""
        if np.array_equal(self.states, other.states):
            states, one, two = self.states, self, other
        else:
            states = np.union1d(self.states, other.states)
            one, two = self._over(states), other._over(states)
        return _Matrix(states, one.ns + two.ns, one.alive_ns + two.alive_ns, one.alone_ns + two.alone_ns)

    def _over(self, states: Int64) -> _Matrix:
        """The same with more states."""
        at = np.searchsorted(states, self.states)
        ns, alive, alone = np.zeros((len(states), len(states))), np.zeros(len(states)), np.zeros(len(states))
        ns[np.ix_(at, at)], alive[at], alone[at] = self.ns, self.alive_ns, self.alone_ns
        return _Matrix(states, ns, alive, alone)


def _sweep(block: Int64, state: Int64, start: Float, end: Float, total: Float, alone: Float) -> None:
    """Add the overlaps of whole blocks, part by part: the set of states alive changes only at an edge.

    The edges of each block sum up to 0 before the next block begins.
    """
    time, of = np.concatenate([start, end]), np.concatenate([block, block])
    order = np.lexsort((time, of))
    time, of = time[order], of[order]
    what, step = state[order % len(state)], np.where(order < len(state), 1.0, -1.0)
    length = np.diff(time)
    length[np.diff(of) != 0] = 0.0
    most = max(1, _CELLS // len(total))
    carried = np.zeros(len(total))
    for first in range(0, len(length), most):
        part = slice(first, min(first + most, len(length)))
        alive = np.zeros((part.stop - first, len(total)))
        alive[np.arange(len(alive)), what[part]] = step[part]
        alive[0] += carried
        np.cumsum(alive, axis=0, out=alive)
        carried = alive[-1].copy()
        weighted = alive * length[part, None]
        total += weighted.T @ alive
        total[np.diag_indices_from(total)] -= weighted.sum(axis=0)
        alone += weighted[alive.sum(axis=1) < 1.5].sum(axis=0)
