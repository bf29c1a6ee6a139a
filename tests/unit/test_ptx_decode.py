"""kscope.decode reads what the emitted text wrote, without false problems."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from ptxvm.cases import Case, Outcome, cases, execute, flags, judged
from ptxvm.oracle import Event
from ptxvm.profile import examples

import kscope
from kscope.capture import layout, wire
from kscope.capture.capture import Capture
from kscope.capture.capture_data import DeviceCapture
from kscope.capture.layout import Kind

WHERE = ("block", "warp", "lane", "sm")
Where = tuple[int, ...]
LONGEST = 255 << 32
"""Ticks that a warp's duration is known to."""


def captured(outcome: Outcome) -> Capture:
    """The pool as the host drains it."""
    host = outcome.host
    lost = sum(int(host.stripe(n)["lost"]) for n in range(len(host.rings)))
    return Capture(host.epoch, (DeviceCapture(0, "simulated", host.lines(), lost=lost),), (outcome.lowered.meta,))


def expected(outcome: Outcome) -> dict[Where, tuple[list[Event], int]]:
    """(block, warp, lane, sm) -> the events that its slab kept, oldest first, and how long it ran in ticks."""
    case, found = outcome.case, {}
    for slab in outcome.slabs:
        one, size = outcome.ideals[slab.key], len(slab.ring)
        kept = one.events[:size] if case.recording.fill == "stop" else one.events[max(0, len(one.events) - size) :]
        x, y, z, _ = slab.key
        block = (x + case.shape.grid[0] * (y + case.shape.grid[1] * z)) % (1 << wire.BLOCK_BITS)
        clock = 0 if case.recording.clock == "cycles" else 1
        kept = whole(kept, outcome)
        where = (block, one.thread.warp, one.thread.lane, one.thread.special["%smid"])
        # an anchor may have taken its full width, so the lane's length is uncertain by as much
        found[where] = (kept, one.end[clock] - one.start[clock] + one.start[2] + one.end[2])
    return joined(found) if in_turn(outcome) else found


def whole(rows: list[Event], outcome: Outcome) -> list[Event]:
    """The events of rows: one of a value of 64 bits has a row before it, and without that no value."""
    types, found = {region.name: region.type for region in outcome.lowered.meta.regions}, list[Event]()
    wide = {layout.name_hash(name): kind for name, kind in types.items() if kind in ("i64", "u64", "f64")}
    for before, event in pairwise([None, *rows]):
        number, kind, value = event.id & ~layout.HAS_MORE, wide.get(event.id >> 4), event.value
        if event.id & 15 == layout.MORE:
            continue
        if kind is None or event.id & 15 in (Kind.SPAN, Kind.INSTANT):
            found.append(event)
            continue
        more = before.value if event.id != number and before is not None else 0
        if event.id != number and (before is None or before.id & 15 != layout.MORE):
            bare = Kind.SPAN if number & 15 == Kind.SPAN_VALUE else Kind.INSTANT
            found.append(replace(event, id=number & ~15 | bare, value=0))
            continue
        if kind == "f64":
            value = value << 32 | more
        else:
            value |= (more ^ (0xFFFFFFFF if kind == "i64" and value >> 31 else 0)) << 32
        found.append(replace(event, id=number, value=value))
    return found


def in_turn(outcome: Outcome) -> bool:
    """True if lanes of a warp record in turn: they are one row of the trace, that of the first of them."""
    return flags(outcome.marks, outcome.case.recording) & (layout.FLAG_ANY | layout.FLAG_LANES) == layout.FLAG_ANY


def joined(expected_rows: dict[Where, tuple[list[Event], int]]) -> dict[Where, tuple[list[Event], int]]:
    """The records of the lanes of one warp, under the first of them: by their ends, in the lane's order among equal
    ones.
    """
    found: dict[Where, tuple[list[Event], int]] = {}
    rows: dict[Where, Where] = {}
    for where in sorted(expected_rows, key=lambda where: where[2]):
        row = rows.setdefault(where[:2], where)
        events, span = found.get(row, ([], 0))
        found[row] = (events + expected_rows[where][0], max(span, expected_rows[where][1]))
    return {row: (sorted(events, key=lambda event: event.ticks[1]), span) for row, (events, span) in found.items()}


def inside(one: Event, other: Event) -> bool:
    """True if one event ended within the other, of the same name."""
    return one is not other and one.id >> 4 == other.id >> 4 and other.ticks[0] <= one.ticks[1] <= other.ticks[1]


def compare(outcome: Outcome) -> None:
    """Every record of the trace is the event that it should be; a duration is right or unknown."""
    trace = kscope.decode(captured(outcome))
    expected_rows = expected(outcome)
    assert len(trace) == sum(len(events) for events, _ in expected_rows.values())
    where = np.stack([getattr(trace, name).astype(np.int64) for name in WHERE], axis=1) if len(trace) else []
    rows: dict[tuple[int, ...], list[int]] = {key: [] for key in expected_rows}
    for row, key in enumerate(where):
        rows[tuple(key.tolist())].append(row)
    names = trace.region_names()
    for key, (events, span) in expected_rows.items():
        for row, event in zip(rows[key], events, strict=True):
            if span >= 1 << 32 and any(inside(other, event) for other in events):
                continue  # a recursive name of 2^32 ticks: its start is wrong (docs/outputs.md, `wrap`)
            if span >= 1 << 32 and in_turn(outcome):
                continue  # an unknown duration has no end to be in order by
            region = trace.regions[trace.region[row]]
            assert layout.record_id(names[trace.region[row]], region.kind) == event.id
            assert int(trace.bits[row]) == event.value
            start, end = event.ticks
            found = int(trace.dur_cycles[row])
            if found >= 0:
                assert found == end - start
                assert (int(trace.start_ticks[row]) - start) % (1 << 32) == 0  # an SM's first clock has no high word
            else:
                assert span >= 1 << 32, "only a lane of 2^32 ticks or more may hold an unknown duration"
    reported = {problem.kind: problem.count for problem in trace.problems}
    dropped = sum(max(0, len(outcome.ideals[slab.key].events) - len(slab.ring)) for slab in outcome.slabs)
    assert reported.get("overwritten", 0) + reported.get("refused", 0) == dropped
    lost = sum(int(outcome.host.stripe(n)["lost"]) for n in range(len(outcome.host.rings)))
    assert reported.get("lost", 0) == lost


@examples(30)
@given(cases(threads=4))
def test_the_decoder_reads_every_record_of_any_launch(case: Case) -> None:
    compare(judged(execute(case)))


@examples(30)
@given(
    cases(threads=2, ample=True),
    st.lists(st.sampled_from([1, 100, 1 << 30, 1 << 31, (1 << 32) - 1, 1 << 32, 3 << 32]), min_size=1, max_size=7),
)
def test_a_long_duration_is_never_printed_as_a_short_one(case: Case, steps: list[int]) -> None:
    outcome = judged(execute(replace(case, clocks=replace(case.clocks, steps=tuple(steps)))))
    assume(all(span < LONGEST for _, span in expected(outcome).values()))
    compare(outcome)
