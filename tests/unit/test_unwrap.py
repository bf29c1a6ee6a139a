"""Clocks of 32 bits in warps that run for longer: exact, or openly unknown, never wrong."""

from __future__ import annotations

import synth
from hypothesis import given
from hypothesis import strategies as st
from synth import Rec

from kscope.capture import layout
from kscope.capture.layout import Kind
from kscope.trace import Trace, decode

TURN = 1 << 32
NAMES = ("a", "b", "c")


def trace_of(records: list[Rec], **options: int | None) -> Trace:
    return decode(synth.capture(synth.slab(records, **options), names=NAMES))  # type: ignore[arg-type]  # slab's own


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Rec], int, int]:
    """(records in order of end, first tick, last tick) of a lane whose regions follow each other or nest."""
    first = draw(st.sampled_from([0, 5000, TURN - 300, 7 * TURN + 12]))
    clock, records = first, []
    step = st.sampled_from([0, 1, 100, TURN - 1, TURN, TURN + 1, 3 * TURN + 50])
    for _ in range(draw(st.integers(1, 6))):
        clock += draw(step)
        start = clock
        kind = draw(st.sampled_from([Kind.SPAN, Kind.SPAN_VALUE]))
        for _ in range(draw(st.integers(0, 2))):
            inner = clock + draw(step)
            clock = inner + draw(step)
            records.append(
                Rec(draw(st.sampled_from(["b", "c"])), inner, clock, draw(st.sampled_from(list(Kind)[:2])), 9)
            )
        clock += draw(step)
        records.append(Rec("a", start, clock, kind, 9))
    return records, first, clock + draw(step)


@given(histories(), st.booleans())
def test_a_duration_is_right_or_unknown(history: tuple[list[Rec], int, int], timer: bool) -> None:
    records, first, last = history
    flags = layout.FLAG_GLOBALTIMER if timer else 0
    trace = trace_of(records, log2=5, start=first, end=last, start_time=first, end_time=last, flags=flags)
    for record, start, duration in zip(records, trace.start_ticks.tolist(), trace.dur_cycles.tolist(), strict=True):
        if duration >= 0:
            assert (start, duration) == (record.start, record.end - record.start)
    unknown = int((trace.dur_cycles < 0).sum())
    assert unknown == sum(problem.count for problem in trace.problems if problem.kind == "wrap")


@given(histories())
def test_lanes_shorter_than_a_clock_period_decode_exactly(
    history: tuple[list[Rec], int, int],
) -> None:
    records, first, last = history
    if last - first >= TURN:
        scale = 20 * TURN // (1 << 30)
        records = [
            Rec(r.name, first + (r.start - first) // scale, first + (r.end - first) // scale, r.kind, 9)
            for r in records
        ]
        last = first + (last - first) // scale
    if last - first >= TURN:
        return
    trace = trace_of(records, log2=5, start=first, end=last)
    assert trace.start_ticks.tolist() == [record.start for record in records]
    assert trace.dur_cycles.tolist() == [record.end - record.start for record in records]


def test_short_spans_of_a_long_lane_unwrap_from_the_previous_end() -> None:
    """Ten seconds of short spans: each began after the same region's previous end, less than a turn ago."""
    records = [Rec("a", at, at + 100) for at in range(1 << 28, 5 * TURN, 1 << 28)]
    trace = trace_of(records, log2=8, start=0, end=5 * TURN)
    assert trace.dur_cycles.tolist() == [100] * len(records)
    assert not [problem for problem in trace.problems if problem.kind == "wrap"]


def test_spans_of_ambiguous_clock_wraps_have_unknown_duration() -> None:
    trace = trace_of([Rec("a", 1000, 1100 + TURN), Rec("b", 2 * TURN, 2 * TURN + 5)], start=0, end=3 * TURN)
    assert trace.dur_cycles.tolist() == [-1, -1]
    assert str(trace.summary()).count("unknown duration") == 1


def test_ends_are_exact_without_clock_wraps_between_anchors() -> None:
    records = [Rec("a", TURN + 100, TURN + 200), Rec("b", 2 * TURN + 150, 2 * TURN + 160, Kind.SPAN_VALUE, 1)]
    trace = trace_of(records, start=TURN + 50, end=2 * TURN + 190)
    assert (trace.start_ticks + trace.dur_cycles.clip(0)).tolist() == [TURN + 200, 2 * TURN + 160]
    assert trace.dur_cycles.tolist() == [100, -1]


def test_unfinished_lanes_are_unwrapped_without_long_pauses() -> None:
    records = [Rec("a", 1000, 1100), Rec("b", TURN + 5, TURN + 10), Rec("a", TURN + 20, TURN + 70)]
    trace = trace_of(records, start=900, end=None)
    assert trace.dur_cycles.tolist() == [100, 5, 50]
    assert (trace.start_ticks + trace.dur_cycles).tolist() == [1100, TURN + 10, TURN + 70]
