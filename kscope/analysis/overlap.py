"""Overlap: what the warps of a block did at the same time, as a matrix of (role, region).

    ns[a, b] = the time that a warp was in a while another warp of its block was in b, summed over both

Row a, divided by its sum, shows what the other warps did while one was in a. This is concurrency, not causality: for
that see critical.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..tracedata.data import TraceData
from ..tracedata.kernel_names import kernel_names
from .roles import Named
from .roles import roles as find_roles
from .segments import NONE, Segments, flatten, recorded

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
Step = Callable[[int], object]
NO_REGION = "(no region)"
WAIT_WORDS = ("wait", "barrier", "acquire", "sync")
"""A region whose name contains one of these words is a wait, unless waits are given."""
_PIECES = 1 << 18
"""Pieces of blocks sorted together, if a block has fewer."""
_CELLS = 1 << 18
"""Edges times states counted at once."""


@dataclass(frozen=True, eq=False)
class Overlap:
    """One kernel, with s states.

    Attributes:
        kernel: its name.
        states: (s,) pairs (role, region or NO_REGION).
        ns: (s, s) float64, symmetric.
        alive_ns: (s,) total time of the warps in each state.
        alone_ns: (s,) the part of it with no other recorded warp of the block alive.
    """

    kernel: str
    states: tuple[tuple[str, str], ...]
    ns: Float
    alive_ns: Float
    alone_ns: Float

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
        kernel, role, region: which.
        total_ns: of all its warps.
        share: of their total lifetime.
        beside: (role, region, share) of warps of other roles meanwhile, longest first.
    """

    kernel: str
    role: str
    region: str
    total_ns: float
    share: float
    beside: tuple[tuple[str, str, float], ...]


def overlap(trace: TraceData, roles: Named | None = None, step: Step | None = None) -> tuple[Overlap, ...]:
    """One matrix per kernel, of the warps with records.

    Args:
        trace: the trace.
        roles: warp numbers by name; without, as kernels name them, or inferred.
        step: progress callback, called with the number of new records done.

    Raises:
        UsageError: a role without a valid warp number.
    """
    pieces, of_rows = recorded(trace, flatten(trace)), find_roles(trace, roles)
    of_lane, role_names = of_rows.code, of_rows.names
    state, states = _states(trace, pieces, of_lane, role_names)
    warps = trace.warps
    found, kernels = [], kernel_names(trace)
    done = reported = 0

    def passed(count: int) -> None:
        nonlocal done, reported
        done += count
        if step is not None:
            step(len(trace) * done // len(state) - reported)
            reported = len(trace) * done // len(state)

    for kernel in np.unique(warps.kernel[pieces.track]).tolist():
        mine = np.flatnonzero(warps.kernel[pieces.track] == kernel)
        used, local = np.unique(state[mine], return_inverse=True)
        block = warps.launch[pieces.track[mine]] * (int(warps.block.max()) + 1) + warps.block[pieces.track[mine]]
        ns, alone = _matrix(block, local.ravel(), pieces.start[mine], pieces.end[mine], len(used), passed)
        alive = np.bincount(local.ravel(), weights=pieces.ns[mine], minlength=len(used)).astype(np.float64)
        found.append(Overlap(kernels[kernel], tuple(states[one] for one in used.tolist()), ns, alive, alone))
    return tuple(found)


def waits(
    trace: TraceData,
    wait: str | Iterable[str] | None = None,
    roles: Named | None = None,
    step: Step | None = None,
) -> tuple[Wait, ...]:
    """Where warps waited, longest first.

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
            raise UsageError(f"wait={name!r}: no such region; this trace has {', '.join(sorted(known)) or 'none'}")
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
    return tuple(sorted(found, key=lambda row: (row.kernel, -row.total_ns)))


def _states(
    trace: TraceData, pieces: Segments, of_lane: Int64, role_names: tuple[str, ...]
) -> tuple[Int64, list[tuple[str, str]]]:
    """(state of every piece, the states): role x region, no region first."""
    width = len(pieces.names) + 1
    names = [NO_REGION, *pieces.names]
    state = of_lane[pieces.track] * width + (pieces.name - NONE)
    return state, [(name, region) for name in role_names for region in names]


def _matrix(block: Int64, state: Int64, start: Float, end: Float, states: int, step: Step) -> tuple[Float, Float]:
    """(overlaps, alone) of pieces: a sweep over the edges of each block, some blocks at a time."""
    total, alone = np.zeros((states, states)), np.zeros(states)
    order = np.argsort(block, kind="stable")
    cuts = np.flatnonzero(np.diff(block[order])) + 1
    edges = [0, *cuts.tolist(), len(order)]
    first = 0
    for index in range(1, len(edges)):
        if index == len(edges) - 1 or edges[index + 1] - edges[first] > _PIECES:
            mine = order[edges[first] : edges[index]]
            _sweep(block[mine], state[mine], start[mine], end[mine], total, alone)
            step(len(mine))
            first = index
    return total, alone


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
