"""The axis's own error bounds, against simulated GPUs whose true time is known to the picosecond.

Each GPC's clock follows a given function; its SMs count from different offsets; the timer ticks every 32 ns and is read
somewhere in a bracket of 4 to 30 cycles. Absolute times are compared: nothing is shifted to fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import synth
from hypothesis import given, settings
from hypothesis import strategies as st

from kscope.capture import layout
from kscope.capture.capture import Capture
from kscope.decoding.anchors import Anchors, Rows
from kscope.decoding.time_bounds import limits
from kscope.trace import Trace, decode

TICK, ZERO, LENGTH = 32, 1_700_000_000_000_000_000, 200_000.0
SMS, GPCS, WAVES, WARPS, MARKS = 16, 4, 4, 2, 3
BOOSTED = 40e6
GHz = Callable[[int, np.ndarray], np.ndarray]
"""Clock of a GPC, at times in ns."""


def steady(gpc: int, ns: np.ndarray) -> np.ndarray:
    return np.full(len(ns), 1.98)


def apart(gpc: int, ns: np.ndarray) -> np.ndarray:
    """Each GPC has its own clock, 0.5 % from the next."""
    return np.full(len(ns), 1.98 - 0.01 * gpc)


def falling(gpc: int, ns: np.ndarray) -> np.ndarray:
    """3 % slower at the end, and every GPC by a little more."""
    return 1.75 - (0.05 + 0.005 * gpc) * ns / LENGTH


def swaying(gpc: int, ns: np.ndarray) -> np.ndarray:
    return 1.75 + 0.02 * np.sin(2 * np.pi * ns / LENGTH + gpc)


def braked(gpc: int, ns: np.ndarray) -> np.ndarray:
    """Full speed for 5 us, then power-limited, like a matmul."""
    return np.where(ns < 5_000, 1.98, 1.66 + 0.005 * gpc)


def boosted(gpc: int, ns: np.ndarray) -> np.ndarray:
    """A step above the stated highest clock, and not quite steady."""
    return 1.995 * (1 + 2e-5 * np.sin(2 * np.pi * ns * WAVES / BOOSTED))


def braked_early(gpc: int, ns: np.ndarray) -> np.ndarray:
    """Every warp is braked in its first half."""
    return np.where(ns * WAVES / 2.5e6 % 1 < 0.5, 1.6, 1.98)


def braked_late(gpc: int, ns: np.ndarray) -> np.ndarray:
    return np.where(ns * WAVES / 2.5e6 % 1 < 0.5, 1.98, 1.6)


@dataclass(frozen=True)
class Seen:
    """A decoded simulation. at_ends, within: how far warps' starts and ends, and records, are from the truth, in ns;
    ends_error, error: the trace's bounds of that.
    """

    trace: Trace
    at_ends: np.ndarray
    ends_error: np.ndarray
    within: np.ndarray
    error: np.ndarray


def simulate(
    speed: GHz, seed: int, length: float = LENGTH, max_clock_khz: int = 1_980_000, timer: bool = False
) -> Seen:
    rng = np.random.default_rng(seed)
    grid = np.linspace(-1_000, 1.05 * length, 20_001)
    speeds = [speed(gpc, grid) for gpc in range(GPCS)]
    steps = np.diff(grid)
    count = [np.concatenate([[0.0], np.cumsum((s[1:] + s[:-1]) / 2 * steps)]) for s in speeds]
    offset = rng.integers(0, 1 << 40, SMS)

    def clock(sm: int, ns: float) -> int:
        return int(offset[sm] + np.interp(ns, grid, count[sm % GPCS]))

    def anchor(sm: int, ns: float) -> tuple[int, int, int]:
        after = ns + rng.uniform(4, 30) / 2
        read = int(rng.uniform(ns, after)) // TICK * TICK
        return clock(sm, ns), ZERO + read, clock(sm, after) - clock(sm, ns)

    lines, starts, ends, marks = [], [], [], []
    for sm in range(SMS):
        edges = np.linspace(0, length, WAVES + 1) + rng.uniform(0, 0.02 * length, WAVES + 1)
        for wave in range(WAVES):
            for warp in range(WARPS):
                start, end = edges[wave] + rng.uniform(5, 60), edges[wave + 1] - rng.uniform(5, 200)
                inside = np.sort(rng.uniform(start, end, MARKS))
                begin, finish = anchor(sm, start), anchor(sm, end)
                ticks = [ZERO + int(ns) // TICK * TICK if timer else clock(sm, ns) for ns in inside]
                records = [synth.Rec("load", tick, tick) for tick in ticks]
                lines.append(
                    synth.slab(
                        records, start=begin[0], start_time=begin[1], width=begin[2], end=finish[0], end_time=finish[1],
                        end_width=finish[2], sm=sm, warp=warp, block=(sm * WAVES + wave, 0, 0),
                        grid=(SMS * WAVES, 1, 1), flags=layout.FLAG_GLOBALTIMER if timer else 0,
                    )
                )  # fmt: skip
                starts.append(start)
                ends.append(end)
                marks.append(inside)
    device = replace(synth.device(lines, tick_ns=TICK), syncs=(), max_clock_khz=max_clock_khz)
    trace = decode(Capture(synth.EPOCH, (device,), (synth.module(),), {"warps": "some"}))
    shift, warps = trace.origin - ZERO, trace.warps
    at_ends = [np.abs(shift + warps.start_ns - starts), np.abs(shift + warps.end_ns - ends)]
    within = np.abs(shift + trace.start_ns - np.concatenate(marks))
    return Seen(trace, np.concatenate(at_ends), np.tile(warps.ends_error_ns, 2), within, warps.error_ns[trace.track])


def kinds(seen: Seen) -> set[str]:
    return {problem.kind for problem in seen.trace.problems}


def in_steps(seed: int, length: float) -> GHz:
    """Each GPC jumps to another rate at random moments."""
    rng = np.random.default_rng(seed)
    moments = [np.sort(rng.uniform(0, length, 6)) for _ in range(GPCS)]
    rates = rng.uniform(1.6, 1.98, (GPCS, 7))
    return lambda gpc, ns: rates[gpc][np.searchsorted(moments[gpc], ns)]


@pytest.mark.parametrize("max_clock_khz", [0, 1_980_000])
@pytest.mark.parametrize("speed", [steady, apart, falling, swaying, braked])
@given(seed=st.integers(0, 1 << 20), length=st.sampled_from([5_000.0, 40_000.0, LENGTH]))
@settings(max_examples=4, deadline=None)
def test_no_time_is_off_by_more_than_the_error(speed: GHz, max_clock_khz: int, seed: int, length: float) -> None:
    seen = simulate(speed, seed, length, max_clock_khz)
    assert (seen.at_ends <= seen.ends_error).all()
    assert (seen.within <= seen.error).all()


@pytest.mark.parametrize("max_clock_khz", [0, 1_980_000])
@given(seed=st.integers(0, 1 << 20), length=st.sampled_from([5_000.0, 40_000.0, LENGTH, 2.5e6, 4e7, 2e8]))
@settings(max_examples=20, deadline=None)
def test_no_time_is_off_by_more_than_the_error_where_clocks_jump(max_clock_khz: int, seed: int, length: float) -> None:
    seen = simulate(in_steps(seed, length), seed, length, max_clock_khz)
    assert (seen.at_ends <= seen.ends_error).all()
    assert (seen.within <= seen.error).all()


def test_no_time_is_off_by_more_than_the_error_where_clocks_exceed_the_stated_highest() -> None:
    seen = simulate(boosted, 1, BOOSTED)
    assert seen.within.max() > 30  # two anchors cannot see it
    assert (seen.within <= seen.error).all()
    assert (seen.at_ends <= seen.ends_error).all()


def boosted_briefly(length: float, part: float) -> GHz:
    """A step above the highest clock in the first part of each wave, then the highest."""
    return lambda gpc, ns: np.where(ns * WAVES / length % 1 < part, 1.995, 1.98)


@pytest.mark.parametrize("length", [LENGTH, 520_000.0, 1e6])
@pytest.mark.parametrize("part", [0.01, 0.02, 0.03, 0.05])
def test_no_time_is_off_by_more_than_the_error_where_a_boost_is_too_short_to_be_proved(
    part: float, length: float
) -> None:
    """The readings at both ends of a warp allow for the highest clock throughout."""
    for seed in range(3):
        seen = simulate(boosted_briefly(length, part), seed, length)
        assert (seen.within <= seen.error).all()
        assert (seen.at_ends <= seen.ends_error).all()


def test_sms_with_one_clock_are_aligned_within_three_ticks() -> None:
    seen = simulate(steady, 1)
    assert seen.error.max() <= 3 * TICK
    assert seen.within.max() < TICK
    assert kinds(seen) == set()


def test_sms_with_clocks_per_gpc_are_aligned_at_both_ends() -> None:
    seen = simulate(apart, 1)
    assert seen.at_ends.max() < TICK
    assert seen.within.max() < TICK
    assert seen.ends_error.max() <= 2 * TICK


@pytest.mark.parametrize("speed", [falling, swaying, braked])
def test_clock_changes_are_reported_and_followed_at_block_ends(speed: GHz) -> None:
    seen = simulate(speed, 1)
    assert "clock" in kinds(seen)
    assert seen.at_ends.max() < TICK


def test_time_error_bounds_are_within_a_factor_of_the_worst_clock() -> None:
    """Two clocks with the same anchors of a long warp: the farther of them is about as far as the error."""
    early, late = (simulate(one, 3, 2.5e6) for one in (braked_early, braked_late))
    seen = max(early.within.max(), late.within.max())
    assert seen > 0.4 * min(early.error.max(), late.error.max())


def test_times_of_the_global_timer_carry_no_problem_of_the_clock() -> None:
    assert "clock" in kinds(simulate(braked, 1))
    exact = simulate(braked, 1, timer=True)
    assert exact.error.max() <= TICK
    assert kinds(exact) == set()


@pytest.mark.parametrize("end", [-32.0, -1000.0])
def test_anchors_of_an_impossible_clock_leave_the_stated_highest(end: float) -> None:
    """Damaged captures: the timer runs back by one tick, or by more."""
    damaged = Anchors(np.array([0.0, 1000.0]), np.array([1.0, 1.0]), np.array([0.0, end]), np.array([0, 1]))
    found = limits(damaged, Rows.of(np.zeros(2, np.int64)), 32, 1_980_000)
    assert found.highest == pytest.approx(1 / 1.98, rel=0.01)
