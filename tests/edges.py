"""Edges that auto="pipeline" finds, beside those that a user writes by hand between regions that signal and wait."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kscope.analysis.pipelines.phases import Phases, phases
from kscope.trace import Trace


@dataclass(frozen=True)
class Compared:
    """Edges of waits in a region. waits: how many have one. first: those for buffers that were never used. wrong: those
    whose phase has a signal of another round, as (wait's round, signals' rounds)."""

    waits: int
    first: int
    unknown: int
    wrong: tuple[tuple[int, tuple[int, ...]], ...]


def compare(trace: Trace, signal: str, wait: str, lag: int = 0, behind: tuple[int, ...] = (0,)) -> Compared:
    """Compare what is found with the edge signal:wait:lag, of rounds of warps.

    Args:
        trace: with records of auto="pipeline" inside regions of the user.
        signal, wait: names of regions.
        lag: the k-th wait of a warp is for the (k - lag)-th signal.
        behind: how many rounds a signal may be executed after the end of its region's round.
    """
    found = phases(trace)
    names = trace.region_names()[trace.region]
    signals, waits = (_rounds(trace, np.flatnonzero(names == name)) for name in (signal, wait))
    by_phase = _by_phase(found)
    counts = {"waits": 0, "first": 0, "unknown": 0}
    wrong = []
    for number, record in enumerate(found.wait_record.tolist()):
        place = _round(waits, trace, record, inside=True)
        if place is None:
            continue
        counts["waits"] += 1
        phase = int(found.wait_phase[number])
        if not found.wait_known[number]:
            counts["unknown"] += 1
        elif phase < 0:
            counts["first"] += 1
        else:
            rounds = {_round(signals, trace, one, inside=False) for one in by_phase.get(phase, ())}
            if not all((-1 if one is None else one) - (place - lag) in behind for one in rounds):
                wrong.append((place, tuple(sorted(-1 if one is None else one for one in rounds))))
    return Compared(**counts, wrong=tuple(wrong))


def _by_phase(found: Phases) -> dict[int, list[int]]:
    made: dict[int, list[int]] = {}
    for record, phase in zip(found.signal_record.tolist(), found.signal_phase.tolist(), strict=True):
        if phase >= 0:
            made.setdefault(phase, []).append(record)
    return made


def _rounds(trace: Trace, records: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """By row of warps: (starts, ends) in ticks of a region's records, in order."""
    made = {}
    for row in np.unique(trace.track[records]).tolist():
        mine = records[trace.track[records] == row]
        mine = mine[np.argsort(trace.start_ticks[mine])]
        made[row] = trace.start_ticks[mine], trace.start_ticks[mine] + trace.dur_cycles[mine]
    return made


def _round(rounds: dict[int, tuple[np.ndarray, np.ndarray]], trace: Trace, record: int, *, inside: bool) -> int | None:
    """Which record of a region a record is in, or begins after the begin of; None for none."""
    row, time = int(trace.track[record]), int(trace.start_ticks[record])
    if row not in rounds:
        return None
    starts, ends = rounds[row]
    number = int(np.searchsorted(starts, time, side="right")) - 1
    if number < 0 or (inside and time >= ends[number]):
        return None
    return number
