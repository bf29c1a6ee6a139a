"""Depth and crossing, against the definition written out span by span."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscope.tracedata.nesting import MOST_LEVELS, children_weight, crosses_any, layers, nest, parents, separated

Spans = list[tuple[int, int]]


def columns(tracks: list[Spans]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    spans = [(*span, track) for track, spans in enumerate(tracks) for span in spans]
    start, end, track = np.array(spans, np.int64).reshape(-1, 3).T
    return start.copy(), end.copy(), track.astype(np.int32)


@st.composite
def nested(draw: st.DrawFn) -> Spans:
    """Spans in order of end of one layer, as a program with `with` blocks writes them."""
    clock, spans = draw(st.integers(0, 5)), []

    def block(depth: int) -> None:
        nonlocal clock
        start = clock = clock + draw(st.integers(0, 2))
        for _ in range(draw(st.integers(0, 3 if depth < 3 else 0))):
            block(depth + 1)
        clock += draw(st.integers(0, 3))
        spans.append((start, clock))

    for _ in range(draw(st.integers(0, 4))):
        block(0)
    return spans


@given(st.lists(nested(), min_size=1, max_size=4))
def test_depth_is_the_number_of_spans_around(tracks: list[Spans]) -> None:
    start, end, track = columns(tracks)
    depth, crossing = nest(start, end, track)
    expected = [
        sum(
            s <= start[i] and e >= end[i] and e > s and (end[i] > start[i] or e > end[i]) and (j > i or e > end[i])
            for j, (s, e, t) in enumerate(zip(start, end, track, strict=True))
            if t == track[i] and j != i
        )
        for i in range(len(start))
    ]
    assert depth.tolist() == expected
    assert not crossing.any()
    assert not layers(start, end, track).any()


def test_nesting_depth_is_exact_for_distinct_times() -> None:
    start, end, track = columns([[(3, 4), (6, 7), (2, 9), (11, 12), (1, 14)], [(2, 3), (1, 4)]])
    assert nest(start, end, track)[0].tolist() == [2, 2, 1, 1, 0, 1, 0]


@given(st.lists(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=12), min_size=1, max_size=3))
def test_lanes_hold_only_spans_that_nest(tracks: list[list[tuple[int, int]]]) -> None:
    spans = [sorted(((min(s), max(s)) for s in spans), key=lambda s: s[1]) for spans in tracks]
    start, end, track = columns(spans)
    layer = layers(start, end, track)
    for i in range(len(start)):
        for j in range(i + 1, len(start)):
            if track[i] == track[j] and layer[i] == layer[j]:
                assert not start[i] < start[j] < end[i] < end[j]


@pytest.mark.parametrize("count", [9, 10, 40, 300])
def test_any_number_of_spans_may_cross_at_one_time(count: int) -> None:
    across = [(number, count + 2 * number) for number in range(count)]
    start, end, track = columns([across, [(3, 4), (1, 8)], across])
    layer = layers(start, end, track)
    assert sorted(layer[:count].tolist()) == sorted(layer[-count:].tolist()) == list(range(count))
    assert not layer[count : count + 2].any()


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), min_size=30, max_size=60))
def test_lanes_of_spans_that_all_cross_hold_only_those_that_nest(spans: list[tuple[int, int]]) -> None:
    start, end, track = columns([sorted(((min(s), max(s)) for s in spans), key=lambda s: s[1])])
    layer = layers(start, end, track)
    for number in range(int(layer.max()) + 1):
        at = np.flatnonzero(layer == number)
        assert not nest(start[at], end[at], track[at])[1].any()


@given(st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=6), min_size=1, max_size=3))
def test_crossing_spans_are_detected_without_depths(tracks: list[list[tuple[int, int]]]) -> None:
    spans = [sorted(((s, s + took) for s, took in spans), key=lambda s: s[1]) for spans in tracks]
    start, end, track = columns(spans)
    if len(start):
        assert crosses_any(start, end, track) == nest(start, end, track)[1].any()
        assert crosses_any(start << 40, end << 40, track) == nest(start, end, track)[1].any()


@given(st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=9), min_size=1, max_size=3))
def test_spans_receive_the_weights_of_their_children(tracks: list[Spans]) -> None:
    for shortest in (0, 1):  # spans of no length among them, and none
        spans = [sorted(((s, s + max(took, shortest)) for s, took in spans), key=lambda s: s[1]) for spans in tracks]
        start, end, track = columns(spans)
        weight = np.arange(len(start)) + 1
        held, outermost = children_weight(start, end, track, weight)
        parent = parents(start, end, track)
        assert held.tolist() == [int(weight[parent == index].sum()) for index in range(len(start))]
        assert sorted(outermost.tolist()) == np.flatnonzero(parent < 0).tolist()
        behind = np.stack([track, end, start == end], axis=1)[outermost].tolist()
        assert behind == sorted(behind)


def test_spans_beyond_the_depth_limit_count_toward_their_parent() -> None:
    spans = [(100 - depth, 200 + depth) for depth in range(MOST_LEVELS + 20)]
    start, end, track = columns([spans])
    weight = np.arange(len(start)) + 1
    held, outermost = children_weight(start, end, track, weight)
    parent = parents(start, end, track)
    assert held.tolist() == [int(weight[parent == index].sum()) for index in range(len(start))]
    assert outermost.tolist() == [len(start) - 1]


@given(st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=9), min_size=1, max_size=3))
def test_separated_spans_nest_and_include_every_time(tracks: list[Spans]) -> None:
    spans = [sorted(((s, s + took) for s, took in spans), key=lambda s: (s[1], -s[0])) for spans in tracks]
    start, end, track = columns(spans)
    begin = separated(start, end, track)
    for one in range(len(tracks)):
        mine = np.flatnonzero(track == one).tolist()
        for time in range(40):
            around = [index for index in mine if start[index] <= time < end[index]]
            left = [index for index in mine if begin[index] <= time < end[index]]
            assert left[:1] == around[:1]  # the first to end
            assert {*left} <= {*around}
    left = np.flatnonzero(begin < end)
    assert not crosses_any(begin[left], end[left], track[left])


def test_columns_longer_than_a_chunk_are_the_same_as_short_ones() -> None:
    one = [(10, 12), (14, 16), (9, 20), (22, 30), (8, 40)]
    start, end, track = columns([one] * 30_000)
    depth, crossing = nest(start, end, track)
    assert depth.reshape(-1, 5).tolist() == [[2, 2, 1, 1, 0]] * 30_000
    assert not crossing.any()


def test_nesting_depth_is_limited() -> None:
    count = 1000
    start = np.arange(count, 0, -1, dtype=np.int64)
    depth, _ = nest(start, np.arange(count, dtype=np.int64) + count + 1, np.zeros(count, np.int32))
    assert depth.max() == MOST_LEVELS
