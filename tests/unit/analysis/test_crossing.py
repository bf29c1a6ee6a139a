"""Spans of one warp that cross without nesting: each instant belongs to one of them, the one that ends first."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import synth
import traces
from hypothesis import given
from hypothesis import strategies as st
from synth import Rec

import kscope
import kscope_sim
from kscope.analysis import gaps, overlap
from kscope.analysis.segments import NONE, flatten
from kscope.trace import decode


def tangled(rng: random.Random) -> list[traces.Lane]:
    """Lanes whose spans nest and cross arbitrarily."""
    made = [traces.Lane(block=block, end=1030) for block in range(2)]
    for one in made:
        spans = [sorted(rng.sample(range(1000, 1024), 2)) for _ in range(rng.randrange(8))]
        spans.sort(key=lambda span: (span[1], -span[0]))  # as a lane writes them: the inner first
        one.spans = [(rng.choice(traces.NAMES), start, end) for start, end in spans]
    return made


def owner(one: traces.Lane, time: int) -> int:
    """The span that the lane is in during [time, time + 1): of those that it is in, the first to end. -1: in none."""
    return next((index for index, (_, start, end) in enumerate(one.spans) if start <= time < end), -1)


def names_at(one: traces.Lane) -> list[str]:
    """The region of every nanosecond of the lane's life."""
    return [one.spans[at][0] if at >= 0 else "" for at in (owner(one, time) for time in range(one.start, one.end))]


@given(st.randoms(use_true_random=False))
def test_pieces_of_spans_that_cross_are_disjoint_and_add_up_to_the_lanes_life(rng: random.Random) -> None:
    made = tangled(rng)
    pieces = flatten(traces.trace(made))
    for row, one in enumerate(made):
        reported = ["?"] * (one.end - one.start)
        assert pieces.ns[pieces.track == row].sum() == len(reported)
        for at in np.flatnonzero(pieces.track == row).tolist():
            for time in range(int(pieces.start[at]), int(pieces.end[at])):
                reported[time] = pieces.names[pieces.name[at]] if pieces.name[at] != NONE else ""
        assert reported == names_at(one)


@given(st.randoms(use_true_random=False), st.sampled_from(traces.NAMES))
def test_gaps_in_a_region_have_neighbors_inside_the_region(rng: random.Random, of: str) -> None:
    made = tangled(rng)
    if not any(name == of for one in made for name, _, _ in one.spans):
        return
    want: dict[tuple[str, str], int] = {}
    for one in made:
        owners = {time: owner(one, time) for time in range(one.start - 1, one.end + 1)}
        cuts = [time for time in range(one.start, one.end + 1) if owners[time] != owners[time - 1]]
        for a, b in pairwise(cuts):
            if owners[a] < 0 or one.spans[owners[a]][0] != of:
                continue
            _, start, end = one.spans[owners[a]]
            crossed = any(begin < start and until == a for _, begin, until in one.spans)
            around = (
                gaps.BEGIN if a == start or crossed else one.spans[owners[a - 1]][0],
                gaps.END if b == end else one.spans[owners[b]][0],
            )
            want[around] = want.get(around, 0) + b - a
    found = {(row.after, row.before): row.warp_time_ns for row in gaps.gaps_by_neighbors(traces.trace(made), of)}
    assert found == want


def test_crossing_regions_of_one_warp_do_not_overlap_each_other() -> None:
    even, odd = kscope.scope("copy_even"), kscope.scope("copy_odd")

    def kernel(warp) -> None:  # type: ignore[no-untyped-def]  # a kernel
        even.enter()
        warp.work(10_000)
        odd.enter()
        warp.work(3_000)
        even.exit()
        with kscope.region("compute"):
            warp.work(5_000)
        odd.exit()

    with kscope.profile() as prof:
        kscope_sim.launch(kernel, grid=1, block=32)
    [found] = overlap.overlap(prof.trace)
    assert len(found.states) == 4
    assert not found.ns.any()
    np.testing.assert_allclose(found.alone_ns, found.alive_ns)


def test_spans_that_cross_do_not_count_twice() -> None:
    crossing = [Rec("load", 1000, 1600), Rec("dot", 1400, 2000)]
    trace = decode(synth.capture(synth.slab(crossing, start=1000, end=3000, start_time=1000, end_time=3000, flags=1)))
    pieces = flatten(trace)
    assert pieces.ns.sum() == 2000
    assert sum(row.idle_ns for row in trace.summary().warps) == 1000
