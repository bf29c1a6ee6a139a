"""Gaps and overlaps, compiled and in numpy, equal those of a program that steps through every nanosecond."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pytest
import synth
import traces
from hypothesis import given
from hypothesis import strategies as st
from synth import Rec

from kscope import native
from kscope.analysis import gaps, overlap, segments
from kscope.analysis.gaps import BEGIN, END
from kscope.analysis.overlap import NO_REGION
from kscope.capture.layout import FLAG_GLOBALTIMER, FLAG_STOP
from kscope.trace import decode
from kscope.tracedata.data import TraceData

Piece = tuple[int, int, str, bool, bool]
"""(start, end, region, begins with its span, ends with it)"""


@dataclass(frozen=True)
class Life:
    """A warp: the spans that its slab kept, and its end."""

    lane: traces.Lane
    end: int
    spans: list[tuple[str, int, int]]

    @property
    def block(self) -> tuple[int, int]:
        """(launch, block)."""
        return self.lane.grid_id, self.lane.block

    def pieces(self) -> Iterator[Piece]:
        """One step per nanosecond."""
        around = [self._innermost(time) for time in range(self.lane.start, self.end)]
        time = self.lane.start
        for owner, run in groupby(around):
            until = time + len(list(run))
            begin, end = (self.lane.start, self.end) if owner < 0 else self.spans[owner][1:]
            yield time, until, self.spans[owner][0] if owner >= 0 else NO_REGION, time == begin, until == end
            time = until

    def _innermost(self, time: int) -> int:
        inside = [(end - start, at) for at, (_, start, end) in enumerate(self.spans) if start <= time < end]
        return min(inside, default=(0, -1))[1]


def recorded(rng: random.Random) -> tuple[list[Life], TraceData]:
    """Warps of several launches: some unfinished, some with slabs that lost their first or their last records."""
    lives, slabs = [], []
    for lane in traces.lanes(rng, blocks=2, warps=3, launches=2, shortest=rng.choice([0, 1])):
        if len({span[1:] for span in lane.spans}) < len(lane.spans):
            continue  # which of two equal spans is the inner one is not recorded
        finished, fill = rng.random() < 0.7, rng.choice([0, FLAG_STOP])
        spans = lane.spans[:4] if fill else lane.spans[-4:]
        end = lane.end if finished else max([lane.start, *(span[2] for span in spans)])
        if spans:
            lives.append(Life(lane, end, spans))
        slabs.append(
            synth.slab(
                [Rec(*span) for span in lane.spans],
                log2=2,
                start=lane.start,
                start_time=lane.start,
                end=lane.end if finished else None,
                end_time=lane.end if finished else None,
                block=(lane.block, 0, 0),
                grid=(2, 1, 1),
                warp=lane.warp,
                sm=lane.sm,
                grid_id=lane.grid_id,
                flags=FLAG_GLOBALTIMER | fill,
            )
        )
    return lives, decode(synth.capture(*slabs, names=traces.NAMES))


@pytest.fixture(params=["compiled", "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled loops and numpy in turn, on parts of a few records."""
    if request.param == "numpy":
        monkeypatch.setenv("KSCOPE_NATIVE", "0")
    elif not native.available():
        pytest.skip("kscope was installed without a C compiler")
    monkeypatch.setattr(segments.Cutter.parts, "__defaults__", (None, 5))


@pytest.mark.usefixtures("way")
@given(rng=st.randoms(use_true_random=False), of=st.sampled_from([None, *traces.NAMES]))
def test_gaps_are_those_that_a_step_per_nanosecond_finds(rng: random.Random, of: str | None) -> None:
    lives, trace = recorded(rng)
    if of not in {None, *(name for life in lives for name, start, end in life.spans)}:
        return
    origin, want = trace.origin - 10**18 - 50, list[tuple[object, ...]]()  # synth's timer runs that late
    for life in lives:
        pieces = list(life.pieces())
        for at, (start, end, region, opens, closes) in enumerate(pieces):
            if region != (of or NO_REGION):
                continue
            around = BEGIN if opens else pieces[at - 1][2], END if closes else pieces[at + 1][2]
            others = Counter[str]()
            for other in lives:
                if other is not life and other.block == life.block:
                    for begin, until, name, _, _ in other.pieces():
                        others[name] += max(0, min(until, end) - max(begin, start))
            beside = tuple(sorted((name, ns / others.total()) for name, ns in others.items() if ns))
            label = f"block {life.lane.block} warp {life.lane.warp}"
            want.append((life.lane.grid_id, label, *around, start - origin, end - start, beside))
    found = gaps.longest(trace, len(want) + 1, of)
    launches = [trace.launches[gap.launch].grid_id for gap in found]
    assert sorted(want) == sorted(
        (launch, gap.warp, gap.after, gap.before, gap.start_ns, gap.ns, tuple(sorted(gap.beside)))
        for launch, gap in zip(launches, found, strict=True)
    )
    assert [gap.ns for gap in found] == sorted((gap.ns for gap in found), reverse=True)
    for top in range(4):
        assert gaps.longest(trace, top, of) == found[:top]
    lengths: dict[tuple[str, str], list[float]] = {}
    for gap in found:
        lengths.setdefault((gap.after, gap.before), []).append(gap.ns)
    assert {
        (row.after, row.before): (row.count, row.warp_time_ns, row.max_ns) for row in gaps.gaps_by_neighbors(trace, of)
    } == {around: (len(ns), sum(ns), max(ns)) for around, ns in lengths.items()}


@pytest.mark.usefixtures("way")
@given(rng=st.randoms(use_true_random=False), named=st.booleans())
def test_overlaps_are_those_that_a_step_per_nanosecond_finds(rng: random.Random, named: bool) -> None:
    lives, trace = recorded(rng)
    found = overlap.overlap(trace, {"first": [0], "rest": [1, 2]} if named else {"all": range(32)})
    role = {0: "first", 1: "rest", 2: "rest"} if named else dict.fromkeys(range(3), "all")
    both, alone, alive = (Counter[object]() for _ in range(3))
    for life in lives:
        for start, end, region, _, _ in life.pieces():
            here = role[life.lane.warp], region
            for time in range(start, end):
                alive[here] += 1
                there = [
                    (role[other.lane.warp], name)
                    for other in lives
                    if other is not life and other.block == life.block
                    for begin, until, name, _, _ in other.pieces()
                    if begin <= time < until
                ]
                alone[here] += not there
                for state in there:
                    both[here, state] += 1
    if not lives:
        assert found == ()
        return
    [one] = found
    assert set(one.states) == set(alive)
    assert dict(zip(one.states, one.alive_ns.tolist(), strict=True)) == dict(alive)
    np.testing.assert_allclose(one.alone_ns, [alone[state] for state in one.states], atol=1e-9)
    np.testing.assert_allclose(one.ns, [[both[a, b] for b in one.states] for a in one.states], atol=1e-9)


@given(rng=st.randoms(use_true_random=False))
def test_compiled_pieces_are_those_of_numpy(rng: random.Random) -> None:
    _, trace = recorded(rng)
    with pytest.MonkeyPatch.context() as patched:
        compiled = segments.flatten(trace)
        patched.setenv("KSCOPE_NATIVE", "0")
        plain = segments.flatten(trace)
    for column in ("track", "name", "start", "end", "opens", "closes"):
        assert getattr(compiled, column).tolist() == getattr(plain, column).tolist(), column


def test_overlap_of_several_kernels_has_a_matrix_for_each() -> None:
    slabs = [
        synth.slab([Rec(name, 1010, 1100)], block=(0, 0, 0), warp=warp, kernel=kernel, grid_id=kernel, end=1200)
        for kernel, name in ((1, "load"), (2, "dot"))
        for warp in range(2)
    ]
    one, two = overlap.overlap(decode(synth.capture(*slabs)), {"all": range(32)})
    assert (one.states, two.states) == (
        (("all", NO_REGION), ("all", "load")),
        (("all", NO_REGION), ("all", "dot")),
    )
    np.testing.assert_allclose(one.ns, two.ns)
    assert one.ns[1, 1] == pytest.approx(2 * 90 / 1.98, rel=0.01)
