"""Rings of barriers: the stages of one pipeline, and the ring that gives back the buffers which another ring fills."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...tracedata.data import TraceData
from ...util.arrays import Bools, Float, Int64
from ...util.runs import order_by
from .committed import slot_of
from .phases import Phases


@dataclass(frozen=True, eq=False)
class Ring:
    """The stages of a pipeline.

    Attributes:
        kernel: index into Trace.kernels.
        barriers: the addresses of its stages.
        copies: True if copies complete at them.
        phases: indices of its phases, by block, stage and number.
        stage: stage of each phase.
        waits, signals: indices into Phases.wait_record and Phases.signal_record.
        back: index of the ring that gives its buffers back; -1 for none.
        alone: True if the warps that fill its buffers also use them.
        groups: kind of its groups, whose slots are its barriers; empty for barriers.
    """

    kernel: int
    barriers: tuple[int, ...]
    copies: bool
    phases: Int64
    stage: Int64
    waits: Int64
    signals: Int64
    back: int = -1
    alone: bool = False
    groups: str = ""


def rings(trace: TraceData, found: Phases) -> tuple[Ring, ...]:
    """The rings of a whole trace, by kernel and address.

    A ring is a set of barriers of a kernel that are signaled by the same code and need equally many arrivals; copies
    complete at all of them, or at none. Its stages are numbered by the addresses of their barriers. A ring without
    copies gives back the buffers of a ring with copies if both have the same number of stages, the warps that wait for
    the first fill the second, and the warps that arrive at the first wait for the second.
    """
    if not len(found):
        return ()
    kernel = trace.warps.kernel[found.row]
    copies = _with_copies(found, kernel)
    key = np.stack([kernel, found.barrier, found.needed, copies.astype(np.int64)], axis=1)
    barriers, of = np.unique(key, axis=0, return_inverse=True)
    of = of.ravel()
    number = _connected(trace, found, barriers, of)[of]
    made = []
    for ring in np.unique(number).tolist():
        mine = np.flatnonzero(number == ring)
        places, stage = np.unique(found.barrier[mine], return_inverse=True)
        place, age = (found.launch, found.block, found.row), (found.life, found.number)
        order = order_by(*(one[mine] for one in place), stage.ravel(), *(one[mine] for one in age))
        inside = np.append(number == ring, False)
        waits, signals = np.flatnonzero(inside[found.wait_phase]), np.flatnonzero(inside[found.signal_phase])
        first = mine[0]
        made.append(Ring(
            int(kernel[first]), tuple(places.tolist()), bool(copies[first]), mine[order], stage.ravel()[order],
            waits, signals, groups=(slot_of(int(places[0])) or ("",))[0],
        ))  # fmt: skip
    made.sort(key=lambda ring: (ring.kernel, ring.barriers))
    return tuple(_paired(trace, found, made))


def _with_copies(found: Phases, kernel: Int64) -> Bools:
    """(p,) True if copies complete at the barrier in some phase."""
    key = np.stack([kernel, found.barrier], axis=1)
    _, of = np.unique(key, axis=0, return_inverse=True)
    has = np.bincount(of.ravel(), (found.copies > 0) | (found.expected > 0)) > 0
    return np.asarray(has[of.ravel()])


def _connected(trace: TraceData, found: Phases, barriers: Int64, of: Int64) -> Int64:
    """(barriers,) a number shared by the barriers that one place in the code signals."""
    parent = list(range(len(barriers)))

    def root(one: int) -> int:
        while parent[one] != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        return one

    mine = np.flatnonzero(found.signal_phase >= 0)
    region = trace.region[found.signal_record[mine]].astype(np.int64)
    pairs = np.unique(np.stack([region, of[found.signal_phase[mine]]], axis=1), axis=0)
    first: dict[tuple[int, ...], int] = {}
    for place, barrier in pairs.tolist():
        kernel, _, needed, copies = barriers[barrier].tolist()
        other = first.setdefault((place, kernel, needed, copies), barrier)
        parent[root(barrier)] = root(other)
    # unrolled code signals each stage in another place; then the place that waits is one
    size = np.bincount([root(one) for one in range(len(barriers))], minlength=len(barriers))
    alone = {one for one in range(len(barriers)) if size[root(one)] == 1}
    waits = np.flatnonzero(found.wait_phase >= 0)
    region = trace.region[found.wait_record[waits]].astype(np.int64)
    for place, barrier in np.unique(np.stack([region, of[found.wait_phase[waits]]], axis=1), axis=0).tolist():
        if barrier in alone:
            kernel, _, needed, copies = barriers[barrier].tolist()
            other = first.setdefault((-place, kernel, needed, copies), barrier)
            parent[root(barrier)] = root(other)
    slots = dict[tuple[int, str], int]()  # all slots of one sort, which unrolled code signals in several places
    for number, (kernel, place, *_) in enumerate(barriers.tolist()):
        if (slot := slot_of(place)) is not None:
            parent[root(number)] = root(slots.setdefault((kernel, slot[0]), number))
    return np.array([root(one) for one in range(len(barriers))], np.int64)


def _paired(trace: TraceData, found: Phases, made: list[Ring]) -> list[Ring]:
    def warps(records: Int64) -> set[int]:
        return set(np.unique(trace.warp[records]).tolist())

    waiters = [warps(found.wait_record[ring.waits]) for ring in made]
    signallers = [warps(found.signal_record[ring.signals]) for ring in made]
    paired = []
    for at, ring in enumerate(made):
        back = next(
            (
                other
                for other, one in enumerate(made)
                if ring.copies and not one.copies and not (ring.groups or one.groups) and one.kernel == ring.kernel
                and len(one.barriers) == len(ring.barriers)
                and waiters[other] & signallers[at] and signallers[other] & waiters[at]
            ),
            -1,
        )  # fmt: skip
        alone = bool(waiters[at] & signallers[at])
        paired.append(replace(ring, back=back, alone=alone))
    return paired


def follows(found: Phases, ring: Ring) -> Bools:
    """(p - 1,) True where a phase of a ring follows the previous one in the same buffer."""
    mine = ring.phases
    same = (np.diff(ring.stage) == 0) & (np.diff(found.row[mine]) == 0)
    later = np.diff(found.life[mine]) + (np.diff(found.number[mine]) == 1)
    return np.asarray(same & (later > 0))


def released_ns(found: Phases, made: tuple[Ring, ...], ring: Ring) -> Float:
    """Time when the buffer of each of a ring's phases was free again, ns; NaN if unknown.

    With a ring that gives buffers back, at the last arrival of its phase; else, if the same warps fill and use buffers,
    when the next phase began.
    """
    mine = ring.phases
    if ring.back < 0 and not ring.alone:
        return np.full(len(mine), np.nan)
    if ring.back < 0:
        following = np.append(found.first_ns[mine][1:], np.nan)
        return np.where(np.append(follows(found, ring), False), following, np.nan)
    back = made[ring.back]

    def keys(one: Ring) -> list[tuple[int, ...]]:
        columns = (found.launch, found.block, found.life, found.number)
        return list(zip(one.stage.tolist(), *(column[one.phases].tolist() for column in columns), strict=True))

    over = dict(zip(keys(back), np.where(found.complete, found.issued_ns, np.nan)[back.phases].tolist(), strict=True))
    return np.array([over.get(key, np.nan) for key in keys(ring)])
