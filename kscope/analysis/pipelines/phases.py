"""The phases of barriers: the arrivals, copies and waits of each phase, and when it completed."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ...capture.model import Problem
from ...tracedata.data import TraceData
from ...util.arrays import Bools, Float, Int64
from ...util.runs import least_of, most_of, numbered
from . import events as be
from .committed import Committed, committed_groups
from .events import Events, Homes
from .groups import FIRST, Groups, counts_by_barrier, window
from .remote_waits import remote_waits

NO_PHASE = -1
_TIMES, _LEAST = 2, 64
"""A wait was blocked if it took more than _TIMES the shortest wait of its kernel, and more than _LEAST ticks."""
_MOST = 256
"""A wait for groups of more ticks was blocked, even if all others took as long."""
_NEVER = np.int64(1) << 62


@dataclass(frozen=True, eq=False)
class Phases:
    """Phases of all barriers of a trace, by block, barrier and number; arrays have shape (p,).

    Attributes:
        launch, block, barrier: index into Trace.launches, linear block, offset of the barrier in shared memory; for
            groups of asynchronous work (committed.py) the number of a slot.
        row: a row of Trace.warps of the block; for groups, that of their warp.
        life: number of earlier initializations of the barrier.
        number: of the phase since the barrier was initialized; since the first record if earlier ones are missing.
        needed, arrived: arrivals that complete the phase, and recorded ones.
        expected: expected bytes.
        copied: bytes of its copies; -1 if the code does not contain the size of one.
        copies: number of copies and other asynchronous operations that complete at the barrier.
        first_ns: time of the first operation.
        issued_ns: time of the last operation: the phase completed later.
        landed_ns: end of the first wait for the phase, which had completed by then; inf without a wait.
        exact: True if that wait was blocked until the phase completed.
        multicast: True if copies of other blocks, which are unknown, may complete in it.
        wait_record, wait_phase: (w,) index of each wait's record, and its phase; NO_PHASE if it is for the phase before
            the first one, or unknown.
        wait_known: (w,) True if the phase of the wait is known.
        signal_record, signal_phase: (s,) likewise for arrivals and copies.
        problems: what is unknown.
    """

    launch: Int64
    block: Int64
    barrier: Int64
    row: Int64
    life: Int64
    number: Int64
    needed: Int64
    arrived: Int64
    expected: Int64
    copied: Int64
    copies: Int64
    first_ns: Float
    issued_ns: Float
    landed_ns: Float
    exact: Bools
    multicast: Bools
    wait_record: Int64
    wait_phase: Int64
    wait_known: Bools
    signal_record: Int64
    signal_phase: Int64
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.number)

    @property
    def complete(self) -> Bools:
        """True for phases all of whose arrivals were recorded."""
        return self.arrived >= self.needed


def phases(trace: TraceData) -> Phases:
    """The phases of a trace's barriers; of a filtered trace those of the whole one.

    A barrier counts arrivals. A phase completes when the count of its initialization is reached and the expected bytes
    have landed; then the next phase begins. So arrivals in order of time determine the phases. A wait names a parity,
    and passes once the phase of that parity has completed: the arrivals before the end of the wait determine which
    phase that was.

    Nothing records when a phase completes: after its last operation was issued, and before the first wait for it ended.
    If that wait was blocked, the upper bound is exact, except for the time that a warp takes to wake up. Where records
    are missing, phases are unknown until only one count of arrivals agrees with all waits (resynchronize.py).
    """
    trace = trace.whole
    homes = Homes.among(trace)
    found, elsewhere = be.events(trace, homes)
    time = np.where(found.operation == be.WAIT, found.end, found.start)
    found = found.take(np.lexsort((found.operation == be.WAIT, time, found.barrier, found.home)))
    since, until = window(trace, homes)
    counts = counts_by_barrier(trace, homes, found)
    there = (found.start >= since[found.home]) & (found.end <= until[found.home])
    outside = int(np.count_nonzero(~there))
    found = found.take(np.flatnonzero(there))
    groups = Groups.among(trace, homes, found, counts, since == FIRST)
    made = _assembled(trace, homes, found, groups)
    texts = {
        "operations on barriers of blocks that did not record: their phases are unknown": elsewhere,
        "operations next to missing records are left out": outside,
        "barriers whose count of arrivals was not recorded: their phases are unknown": groups.uncounted,
        "barriers of blocks with missing records, whose arrivals can be counted in more than one way: their phases are "
        "unknown; record more (records=), or fewer blocks (block=)": groups.lost,
        "waits that fit no phase: nothing is known about them": int(np.count_nonzero(~made.wait_known)) - groups.waits,
    }
    groups_of_work = committed_groups(trace)
    branches = "sequences of groups of asynchronous work that warps commit in branches: which a wait is for is unknown"
    texts[branches] = groups_of_work.mixed
    problems = tuple(Problem("pipeline", f"{count} {text}", count) for text, count in texts.items() if count > 0)
    return replace(_with_groups(trace, made, groups_of_work), problems=problems)


def _assembled(trace: TraceData, homes: Homes, found: Events, groups: Groups) -> Phases:
    of, needed = groups.of, np.maximum(groups.needed, 1)
    known = groups.needed[of] > 0
    total = np.cumsum(found.weight * (found.operation != be.INIT))
    before = total - found.weight * (found.operation != be.INIT)
    arrivals = total - before[groups.first][of] + groups.offset[of]  # of the group, up to and including each operation
    done = arrivals // needed[of]
    is_wait = found.operation == be.WAIT
    arrives = np.isin(found.operation, (be.ARRIVE, be.EXPECT, be.FOLLOW))
    number = (arrivals - found.weight) // needed[of]
    number = np.where(found.operation == be.EXPECT_TX, done, number)
    parity = found.parity ^ groups.parity[of]
    waited = np.where((done - 1) % 2 == parity, done - 1, done - 2)
    number = np.where(is_wait, waited, number)
    fits = known & (~is_wait | (number >= NO_PHASE))
    for group in np.unique(of[(found.slack > 0) & known]).tolist():
        mine = np.flatnonzero(of == group)
        waits = mine[is_wait[mine]]
        number[waits] = remote_waits(trace, found.take(mine), done[mine], int(groups.parity[group]))
        fits[waits] = number[waits] >= NO_PHASE
    # copies belong to the phase of the last operation that expects bytes, or to the next, if that one is over
    copies = np.flatnonzero((found.operation == be.COPY) & known)
    number[copies] = _last_expecting(found, of, number, done, copies)
    sizes = most_of(of[fits], number[fits] + 2, len(groups.needed), 0)
    base = np.cumsum(sizes) - sizes
    at = np.where(fits & (number >= 0), base[of] + number, NO_PHASE)
    mine = np.flatnonzero(is_wait & (at >= 0))
    landed = least_of(at[mine], found.end[mine], int(sizes.sum()), _NEVER)
    over = copies[landed[at[copies]] <= found.start[copies]]
    at[over] += 1
    return _table(trace, homes, found, groups, sizes, at, landed, is_wait, arrives, fits)


def _with_groups(trace: TraceData, made: Phases, found: Committed) -> Phases:
    """The phases of barriers, followed by those of groups."""
    if not len(found.wait_record) and not len(found.row):
        return made
    ns = partial(trace.ns_of, found.row)
    count, ended = len(found.row), found.landed != be.UNKNOWN
    one, none = np.ones(count, np.int64), np.zeros(count, np.int64)
    exact = _stood(trace, found, ended)
    more = Phases(
        launch=trace.warps.launch[found.row], block=trace.warps.block[found.row], barrier=found.barrier, row=found.row,
        life=none, number=found.number, needed=one, arrived=one, expected=none, copied=found.bytes,
        copies=found.groups, first_ns=ns(found.first), issued_ns=ns(found.issued),
        landed_ns=np.where(ended, ns(found.landed), np.inf), exact=exact, multicast=none > 0,
        wait_record=found.wait_record, wait_phase=found.wait_phase, wait_known=found.wait_known,
        signal_record=found.signal_record, signal_phase=found.signal_phase,
    )  # fmt: skip
    shifted = replace(
        more,
        wait_phase=np.where(more.wait_phase >= 0, more.wait_phase + len(made), NO_PHASE),
        signal_phase=more.signal_phase + len(made),
    )
    names = [one.name for one in fields(Phases) if one.name != "problems"]
    columns: dict[str, Any] = {name: np.concatenate([getattr(made, name), getattr(shifted, name)]) for name in names}
    return Phases(**columns)


def _stood(trace: TraceData, found: Committed, ended: Bools) -> Bools:
    """(p,) True where the wait that ended a phase was blocked."""
    took = trace.dur_cycles[found.wait_record]
    kernel = trace.warps.kernel[trace.track[found.wait_record]]
    shortest = least_of(kernel, np.maximum(took, 0), len(trace.kernels), _NEVER)
    stood = took > np.clip(_TIMES * shortest[kernel], _LEAST, _MOST)
    exact = np.zeros(len(found.row), bool)
    exact[found.wait_phase[stood & (found.wait_phase >= 0)]] = True
    return exact & ended


def _last_expecting(found: Events, of: Int64, number: Int64, done: Int64, copies: Int64) -> Int64:
    expects = np.isin(found.operation, (be.EXPECT, be.EXPECT_TX))
    last = np.maximum.accumulate(np.where(expects, np.arange(len(found)), -1))[copies]
    same = (last >= 0) & (of[last] == of[copies])
    return np.where(same, number[last], done[copies])


def _table(
    trace: TraceData, homes: Homes, found: Events, groups: Groups, sizes: Int64, at: Int64, landed: Int64,
    is_wait: Bools, arrives: Bools, fits: Bools,
) -> Phases:  # fmt: skip
    count = int(sizes.sum())
    group = np.repeat(np.arange(len(sizes)), sizes)
    home = found.home[groups.first][group]
    signals = np.flatnonzero(~is_wait & (at >= 0) & (found.operation != be.INIT))
    where, operation = at[signals], found.operation[signals]
    begin = found.start[signals] - found.slack[signals]
    first, issued = least_of(where, begin, count, _NEVER), most_of(where, begin, count, -_NEVER)
    copies, brought = found.copies[signals], found.copied[signals]
    unsized = np.bincount(where, (copies > 0) & (brought < 0), count) > 0
    copied = np.where(unsized, be.UNKNOWN, np.bincount(where, np.maximum(brought, 0), count).astype(np.int64))
    used = np.flatnonzero(np.bincount(where, minlength=count))
    place = numbered(used, count + 1, NO_PHASE)
    waits = np.flatnonzero(is_wait)
    wait_phase = place[at[waits]]
    exact = _exact(trace, found, waits, wait_phase, issued[used], landed[used])
    row = homes.row[home[used]]
    over = np.where(landed[used] < _NEVER, homes.ns(trace, home[used], landed[used]), np.inf)

    def total(weights: npt.NDArray[np.generic]) -> Int64:
        return np.bincount(where, weights, count)[used].astype(np.int64)

    return Phases(
        launch=trace.warps.launch[row],
        block=trace.warps.block[row],
        barrier=found.barrier[groups.first][group[used]],
        row=row,
        life=groups.life[group[used]],
        number=used - (np.cumsum(sizes) - sizes)[group[used]] + groups.parity[group[used]],
        needed=groups.needed[group[used]],
        arrived=total(found.weight[signals] * arrives[signals]),
        expected=total(found.bytes[signals]),
        copied=copied[used],
        copies=total(copies + (operation == be.FOLLOW)),
        first_ns=homes.ns(trace, home[used], first[used]),
        issued_ns=homes.ns(trace, home[used], issued[used]),
        landed_ns=over,
        exact=exact,
        multicast=total(found.multicast[signals]) > 0,
        wait_record=found.record[waits],
        wait_phase=wait_phase,
        wait_known=fits[waits] & ((wait_phase >= 0) | (at[waits] < 0)),
        signal_record=found.record[signals],
        signal_phase=place[where],
    )


def _exact(
    trace: TraceData, found: Events, waits: Int64, phase: Int64, issued: Int64, landed: Int64
) -> npt.NDArray[np.bool_]:
    """(p,) True where the first wait for a phase that ended was blocked."""
    exact = np.zeros(len(landed), bool)
    if not len(waits):
        return exact
    kernel = trace.warps.kernel[trace.track[found.record[waits]]]
    took = found.end[waits] - found.start[waits]
    shortest = least_of(kernel, took, len(trace.kernels), _NEVER)
    mine = phase >= 0
    still = took > np.maximum(_TIMES * shortest[kernel], _LEAST)
    still[mine] |= found.start[waits][mine] < issued[phase[mine]]
    first = mine.copy()
    first[mine] = found.end[waits][mine] == landed[phase[mine]]
    exact[phase[first & still]] = True
    return exact
