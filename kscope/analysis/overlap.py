"""What the warps of a block did at the same time: an overlap matrix of (role, region).

    ns[a, b] = the time that a warp was in a while another warp of its block was in b, summed over both

So row a, divided by its sum, tells what the others did while one was in a: for a wait, whom it waited beside. That is
what was seen together, not what caused what: see critical.py for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..tracedata.data import TraceData
from ..tracedata.kernel_names import kernel_names
from .groups import Roles, role
from .segments import NONE, Segments, flatten, recorded

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
Step = Callable[[int], object]
NO_REGION = "(no region)"
WAIT_WORDS = ("wait", "barrier", "acquire", "sync")
"""A region whose name has one of these words is taken for a wait, unless waits are named."""
_PIECES = 1 << 18
"""Pieces of blocks that are put in order together, where a block has fewer."""
_CELLS = 1 << 18
"""Edges times states that are counted at once."""


@dataclass(frozen=True, eq=False)
class Overlap:
    """One kernel. states: (role, region or NO_REGION). ns: (s, s) float64, symmetric. alive_ns: (s,) time of all warps
    in each state. alone_ns: (s,) the part of it in which no other recorded warp of the block was alive."""

    kernel: str
    states: tuple[tuple[str, str], ...]
    ns: Float
    alive_ns: Float
    alone_ns: Float

    def beside(self, state: int, other_roles: bool = True) -> Float:
        """(s,) parts of what others did while a warp was in `state`, from 0 to 1; they add up to 1 or are all 0.
        other_roles: only warps of other roles count, where there are any."""
        row = self.ns[state].copy()
        if other_roles and len({role for role, _ in self.states}) > 1:
            row[[role == self.states[state][0] for role, _ in self.states]] = 0.0
        whole = float(row.sum())
        return np.asarray(row / whole) if whole > 0 else row


@dataclass(frozen=True)
class Wait:
    """Time of a role in a waiting region, or in none. total_ns: of all its warps. beside: (role, region, part), what
    warps of other roles did meanwhile, longest first, parts from 0 to 1."""

    kernel: str
    role: str
    region: str
    total_ns: float
    share: float
    beside: tuple[tuple[str, str, float], ...]


def overlap(trace: TraceData, roles: Roles | None = None, step: Step | None = None) -> tuple[Overlap, ...]:
    """One matrix per kernel, of the lanes that have records. step: called with the number of new records done.
    Raises UsageError for roles that name no warp."""
    pieces, (of_lane, role_names) = recorded(trace, flatten(trace)), role(trace, roles)
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
    roles: Roles | None = None,
    step: Step | None = None,
) -> tuple[Wait, ...]:
    """Where warps waited, longest first: regions of these names, or by default those with a word of WAIT_WORDS in
    their name, and the time in no region. step: as in overlap(). Raises UsageError for a name that no region has."""
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
    """Adds the overlaps of whole blocks, in slices of their edges: what is alive after an edge is so until the next.
    Every block's edges sum up to nothing before the next one's begin."""
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
