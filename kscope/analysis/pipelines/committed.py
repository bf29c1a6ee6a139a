"""Groups of asynchronous work that a warp commits and waits for by their number: cp.async, bulk copies, wgmma."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...marks import operations
from ...tracedata.data import TraceData
from ...util.arrays import Bools, Int64
from ...util.runs import group_equal, inverse, least_of, most_of, ordinals
from . import events as be

READ = ".read"
"""A wait for a bulk copy's reads alone; its groups are counted separately."""
_COMMIT, _WAIT = 1, 2
_KINDS = {"commit": _COMMIT, "drain": _WAIT}
_OF = ("cp.async", "cp.async.bulk", f"cp.async.bulk{READ}", "wgmma")
_SLOT_BITS = 10
_MOST_SLOTS = 1 << _SLOT_BITS
_FIRST = 1 << operations.ADDRESS_BITS
"""The number of the first slot."""


def slot_of(barrier: int) -> tuple[str, int] | None:
    """(kind of the groups, number of the slot); None for the address of a barrier."""
    at = barrier - _FIRST
    return (_OF[at >> _SLOT_BITS], at & _MOST_SLOTS - 1) if at >= 0 else None


def label(barrier: int) -> str:
    """The display name of a barrier or a slot."""
    slot = slot_of(barrier)
    return f"barrier {barrier:#x}" if slot is None else f"{slot[0]} groups {slot[1]}"


@dataclass(frozen=True, eq=False)
class Committed:
    """Phases of groups; arrays have shape (p,) except those of waits (w,) and of signals (s,).

    A wait names how many of the newest groups may stay in flight: all older ones of the warp have landed when it ends.
    The groups that a wait is the first to cover are one phase, which was issued with the last of them, and landed
    before the wait ended. Phases use as many slots in rotation as were in flight at once; a slot corresponds to one
    barrier of a pipeline, and has a number that no barrier's address has.

    Attributes:
        row: a row of Trace.warps: the warp's.
        barrier: the slot.
        number: of the phase in its slot.
        bytes: of its copies, of all threads of the warp; -1 if the code does not show them, and for wgmma.
        groups: their number; 0 for wgmma, whose groups copy nothing.
        first, issued, landed: ticks of the first and of the last commit, and of the wait's end; UNKNOWN without
            one.
        wait_record, wait_phase, wait_known: as in Phases.
        signal_record, signal_phase: the same for commits.
        mixed: lanes of warps that commit groups with different numbers of lanes, whose groups are unknown.
    """

    row: Int64
    barrier: Int64
    number: Int64
    bytes: Int64
    groups: Int64
    first: Int64
    issued: Int64
    landed: Int64
    wait_record: Int64
    wait_phase: Int64
    wait_known: Bools
    signal_record: Int64
    signal_phase: Int64
    mixed: int


def committed_groups(trace: TraceData) -> Committed:
    """The groups of a whole trace.

    The groups between a commit and a wait of one warp are counted from the newest one back. So earlier missing records
    do not matter, and only waits that reach beyond them are unknown.
    """
    names = be.names(trace)
    kind = np.array([_KINDS.get(one.operation, 0) if one is not None else 0 for one in names], np.int64)[trace.region]
    record = np.flatnonzero(kind)
    of = np.array([_OF.index(one.of) if one is not None and one.of in _OF else -1 for one in names], np.int64)
    record = record[of[trace.region[record]] >= 0]
    also = np.array([one is not None and one.commits > 0 for one in names], bool)[trace.region[record]]
    is_wait: Bools = np.append(kind[record] == _WAIT, np.zeros(np.count_nonzero(also), bool))
    record = np.append(record, record[also])  # for a wait that includes the commit before it, two rows
    record, is_wait, stream, of_stream = _streams(trace, record, is_wait, of)
    start = trace.start_ticks[record].astype(np.int64)
    end = start + np.maximum(trace.dur_cycles[record], 0)
    order = np.lexsort((is_wait, np.where(is_wait, end, start), stream))
    record, stream, start, end = (column[order] for column in (record, stream, start, end))
    is_wait = is_wait[order]
    bits = trace.bits[record].astype(np.int64)
    left = bits & operations.ADDRESS_MASK
    mixed = _mixed(trace, record, stream, is_wait, bits, of_stream)
    kept = ~mixed[stream]
    commits, waits = np.flatnonzero(~is_wait & kept), np.flatnonzero(is_wait)
    warp = trace.track[record[waits]]
    complete = trace.warps.written[warp] <= trace.warps.records[warp]
    # the groups of all streams are numbered in one sequence
    own = np.searchsorted(stream[commits], stream[waits])
    covered = np.cumsum(~is_wait & kept)[waits] - left[waits]
    reaches = covered > own
    covered = np.maximum(covered, own)
    last = np.maximum.accumulate(covered)
    by = np.searchsorted(last, np.arange(len(commits)), "right")
    ended = by < len(waits)
    ended[ended] = stream[waits[by[ended]]] == stream[commits[ended]]
    key = np.where(ended, by, len(waits) + stream[commits])
    phase_key, phase = np.unique(key, return_inverse=True)
    phase = phase.ravel()
    order = np.lexsort((np.arange(len(phase_key)), _first_of(phase, len(phase_key))))
    phase, phase_key = inverse(order)[phase], phase_key[order]
    first_commit = _first_of(phase, len(phase_key))
    last_commit = most_of(phase, np.arange(len(commits)), len(phase_key), 0)
    done = phase_key < len(waits)
    landed = np.full(len(phase_key), be.UNKNOWN)
    landed[done] = end[waits[phase_key[done]]]
    mine = stream[commits[first_commit]]
    slots, number = _slots(mine, start[commits[first_commit]], landed, of_stream)
    size = np.array([be.UNKNOWN if one is None or one.bytes is None else one.bytes for one in names], np.int64)
    each = size[trace.region[record[commits]]]
    lanes = (bits[commits] >> operations.LANES_SHIFT & 31) + 1
    copies = of_stream != _OF.index("wgmma")
    unsized = np.bincount(phase, each < 0, len(phase_key)) > 0
    brought = np.bincount(phase, np.maximum(each, 0) * lanes, len(phase_key)).astype(np.int64)
    wait_phase = np.full(len(waits), -1)
    wait_phase[reaches] = phase[covered[reaches] - 1]
    return Committed(
        row=trace.track[record[commits[first_commit]]].astype(np.int64),
        barrier=_FIRST + (of_stream[mine] << _SLOT_BITS) + slots,
        number=number,
        bytes=np.where(unsized | ~copies[mine], be.UNKNOWN, brought),
        groups=np.bincount(phase, minlength=len(phase_key)) * copies[mine],
        first=start[commits[first_commit]],
        issued=start[commits[last_commit]],
        landed=landed,
        wait_record=record[waits],
        wait_phase=wait_phase,
        wait_known=(reaches | complete) & ~mixed[stream[waits]],
        signal_record=record[commits],
        signal_phase=phase,
        mixed=int(np.count_nonzero(mixed)),
    )


def _streams(trace: TraceData, record: Int64, is_wait: Bools, of: Int64) -> tuple[Int64, Bools, Int64, Int64]:
    """(records, True for waits, the stream of each, the kind of each stream). A stream is the groups of one sort of a
    lane. Commits of bulk copies belong to two streams, where a warp also waits for their reads alone.
    """
    which, row = of[trace.region[record]], trace.track[record].astype(np.int64)
    bulk, reads = _OF.index("cp.async.bulk"), _OF.index(f"cp.async.bulk{READ}")
    has = np.zeros((len(trace.warps), len(_OF)), bool)
    has[row[is_wait], which[is_wait]] = True
    both = np.flatnonzero(~is_wait & (which == bulk) & has[row, reads])
    only = both[~has[row[both], bulk]]
    which[only] = reads
    both = np.setdiff1d(both, only)
    record, row = np.append(record, record[both]), np.append(row, row[both])
    is_wait = np.append(is_wait, np.zeros(len(both), bool))
    which = np.append(which, np.full(len(both), reads))
    lane = trace.bits[record].astype(np.int64) >> operations.BLOCK_SHIFT & 31
    first, _, stream = group_equal((row * 32 + lane) * len(_OF) + which)
    return record, is_wait, stream, which[first]


def _mixed(trace: TraceData, record: Int64, stream: Int64, is_wait: Bools, bits: Int64, of_stream: Int64) -> Bools:
    """True for streams of warps that commit groups of one sort with different numbers of lanes."""
    _, _, sort = group_equal(trace.track[record].astype(np.int64) * len(_OF) + of_stream[stream])
    count, lanes = int(sort.max(initial=-1)) + 1, bits >> operations.LANES_SHIFT & 31
    least, most = (of(sort[~is_wait], lanes[~is_wait], count, empty) for of, empty in ((least_of, 31), (most_of, 0)))
    mixed = np.zeros(len(of_stream), bool)
    mixed[stream] = (least < most)[sort]
    return mixed


def _first_of(phase: Int64, count: int) -> Int64:
    return least_of(phase, np.arange(len(phase)), count, len(phase))


def _slots(stream: Int64, first: Int64, landed: Int64, of_stream: Int64) -> tuple[Int64, Int64]:
    """(slot, number in it) of phases that are sorted by stream and number: as many slots as the warps of a sort had
    phases in flight at once.
    """
    number = ordinals(stream)
    # a phase is in flight together with all later ones that were begun before it had landed
    ends = np.where(landed < 0, np.int64(1) << 62, landed)
    is_begin = np.repeat([True, False], len(stream))
    order = np.lexsort((is_begin, np.append(first, ends), np.append(stream, stream)))
    begun = np.empty(2 * len(stream), np.int64)
    begun[order] = np.cumsum(is_begin[order])
    together = begun[len(stream) :] - np.arange(len(stream))
    slots = most_of(of_stream[stream], np.minimum(together, _MOST_SLOTS), len(_OF), 1)[of_stream[stream]]
    return number % slots, number // slots
