"""The causal clock against simulated clocks whose truth is known: it is always inside the interval."""

from __future__ import annotations

import numpy as np
import pytest

from kscope.decoding.causal import MOST_RATE, Clock, Evidence, solve

Int64 = np.ndarray
UNIX = 1_700_000_000_000_000_000


class Truth:
    """A clock that is a line against the reference, with jumps."""

    def __init__(self, rng: np.random.Generator, jumps: int = 0, smallest: float = 1e5) -> None:
        self.begin = int(rng.integers(-1 << 40, 1 << 40)) + int(rng.choice([0, UNIX]))
        self.span = float(10 ** rng.uniform(5, 11))
        self.offset = int(rng.integers(-UNIX, UNIX))
        self.rate = float(rng.uniform(-1, 1) * MOST_RATE * rng.choice([1, 1e-1, 1e-2]))
        places = [0.25, 0.5, 0.75] if jumps > 1 else [0.5]
        self.at = [place * self.span for place in places[:jumps]]
        self.by = [float(rng.choice([-1, 1]) * rng.uniform(1, 10) * smallest) for _ in self.at]

    def ahead(self, after: np.ndarray) -> np.ndarray:
        """d minus the offset, `after` ns after the beginning."""
        jumped = sum((by * (after >= at) for at, by in zip(self.at, self.by, strict=True)), np.zeros(len(after)))
        return after * self.rate + jumped


def evidence(rng: np.random.Generator, truth: Truth, count: int, delay: float, tick: int) -> Evidence:
    """Events on one clock and, a random time later, on the other; both clocks show whole ticks."""
    after = np.sort(rng.uniform(0, truth.span, count))
    late = after + rng.exponential(delay, count) + (rng.random(count) < 0.2) * delay * 5
    one_piece = [np.searchsorted(truth.at, moment, "right") for moment in (after, late)]
    same = one_piece[0] == one_piece[1]  # a bracket around a jump is true of neither side's line
    after, late, count = after[same], late[same], int(same.sum())
    first = rng.random(count) < rng.choice([0.1, 0.5, 0.9])
    early, later = after, late

    def reference(moment: np.ndarray) -> Int64:
        return np.floor(moment / tick).astype(np.int64) * tick

    def clock(moment: np.ndarray) -> Int64:
        return np.floor((moment + truth.ahead(moment)) / tick).astype(np.int64) * tick

    up = Evidence.reference_first(reference(early)[first], clock(later)[first], tick)
    down = Evidence.clock_first(reference(later)[~first], clock(early)[~first], tick)
    both = Evidence.joined(up, down)
    order = rng.permutation(len(both))
    return Evidence(both.time[order] + truth.begin, both.value[order] + truth.offset, both.upper[order])


def outside(truth: Truth, clock: Clock, after: np.ndarray) -> np.ndarray:
    """How far the truth is outside of the interval, ns; 0 or less if it is inside."""
    time = truth.begin + np.floor(after).astype(np.int64)
    found = clock.at(time)
    ahead = truth.ahead((time - truth.begin).astype(np.float64)) + float(truth.offset - found.base)
    middle = (found.middle - found.base).astype(np.float64)
    return np.maximum(np.abs(ahead - middle) - found.half, np.maximum(found.low - ahead, ahead - found.high))


@pytest.mark.parametrize(
    "sets", [1_000, pytest.param(10_000, marks=[pytest.mark.variation, pytest.mark.slow])], ids=str
)
def test_the_truth_is_inside_the_interval_of_every_simulated_clock(sets: int) -> None:
    rng, worst, bounded = np.random.default_rng(sets), -np.inf, 0
    for _ in range(sets):
        truth = Truth(rng)
        found = evidence(rng, truth, int(rng.integers(1, 60)), float(10 ** rng.uniform(0, 5)), int(rng.choice([1, 32])))
        clock = solve(found)
        assert clock.jumps == 0
        least, most = clock.pieces[0].rate
        assert least <= truth.rate <= most
        after = rng.uniform(-0.5, 1.5, 20) * truth.span
        worst = max(worst, float(outside(truth, clock, after).max()))
        bounded += bool(np.isfinite(clock.at(np.array([truth.begin])).half).all())
    assert worst <= 0.01  # float64 holds this test's own truth to that
    assert bounded > sets // 2


@pytest.mark.parametrize("jumps", [3, 1])
def test_jumps_are_split_and_the_truth_is_inside_on_both_sides(jumps: int) -> None:
    rng = np.random.default_rng(jumps)
    for _ in range(50):
        truth = Truth(rng, jumps)
        truth.rate = 6e-6
        found = evidence(rng, truth, 200, 300.0, 32)
        clock = solve(found)
        assert 1 <= clock.jumps <= jumps
        if clock.jumps == jumps:
            assert float(outside(truth, clock, rng.uniform(0, 1, 100) * truth.span).max()) <= 0.01


def test_without_a_rate_term_two_seconds_of_a_gpu_are_infeasible_and_with_it_they_are_not() -> None:
    rng, truth = np.random.default_rng(1), Truth(np.random.default_rng(1))
    truth.begin, truth.offset, truth.span, truth.rate = UNIX, -UNIX, 2e9, 6.2e-6
    found = evidence(rng, truth, 600, 300.0, 1)
    assert solve(found, most_rate=0.0).jumps > 0
    clock = solve(found)
    assert clock.jumps == 0
    half = clock.at(UNIX + np.linspace(0, 2e9, 50).astype(np.int64)).half
    assert half.max() < 500
    assert clock.pieces[0].rate[1] - clock.pieces[0].rate[0] < 1e-6


def test_evidence_of_one_side_bounds_one_side() -> None:
    clock = solve(Evidence.reference_first(np.array([1000]), np.array([1500])))
    found = clock.at(np.array([1000]))
    assert found.low[0] == -np.inf
    assert found.base + found.high[0] == pytest.approx(500, abs=0.1)
    assert found.half[0] == np.inf
    assert found.middle[0] == 500


def test_the_interval_is_the_one_that_trying_many_lines_gives() -> None:
    rng = np.random.default_rng(5)
    for _ in range(40):
        truth = Truth(rng)
        truth.begin, truth.offset, truth.span = 0, 0, 1e6
        found = evidence(rng, truth, 30, 200.0, 1)
        clock, time = solve(found), np.array([-200_000, 0, 400_000, 1_300_000])
        rates = np.linspace(-MOST_RATE, MOST_RATE, 20_001)[:, None]
        value = found.value - rates * found.time
        high = np.where(found.upper, value, np.inf).min(axis=1)
        low = np.where(found.upper, -np.inf, value).max(axis=1)
        fits = low <= high
        bound = clock.at(time)
        for at, (least, most) in enumerate(zip(bound.base + bound.low, bound.base + bound.high, strict=True)):
            lines = rates[:, 0] * time[at]
            assert (low + lines)[fits].min(initial=np.inf) >= least - 1e-6
            assert (high + lines)[fits].max(initial=-np.inf) <= most + 1e-6
            if fits.sum() > 1000 and np.isfinite(most):  # as tight as the grid of rates is fine
                assert (high + lines)[fits].max() >= most - 0.5


def test_a_hull_of_points_that_alternate_is_found_in_linear_time() -> None:
    time = np.arange(100_000, dtype=np.int64) * 1000
    bowl = ((time - 50_000_000) / 1e6) ** 2
    value = (bowl * 10).astype(np.int64) + (np.arange(len(time)) % 3) * 5
    found = Evidence(time, value, np.ones(len(time), bool))
    below = Evidence(time, np.full(len(time), -5), np.zeros(len(time), bool))
    clock = solve(found, below)
    at = clock.at(time[::1000])
    assert clock.jumps == 0
    assert (at.base + at.high <= value[::1000] + 0.1).all()
