"""Recorded regions compared with known truth: the kernel's own clocks, dependency chains, barriers, and order.

Every bound comes from the trace itself (the tick of the timer, the error of its alignment), or from the kernel's own
clock reads directly inside and around a region. Every run prints its measurements, so that a violated bound can be
explained (docs/design/reliability.md has one run's numbers).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest
from unsteady import LIMITS, Limit

import kscope

cupy = pytest.importorskip("cupy")
Table = Callable[[str, str], None]
Float = npt.NDArray[np.float64]

SPANS, SPAN_WARPS = 1_000_000, 16
"""Least number of spans that are compared with the timer in each condition; warps of a block that record them."""
COLD_SESSIONS = int(os.environ.get("COLD_SESSIONS", "4"))
"""Each begins after a second of rest; COLD_SESSIONS=60 looks longer for a rare span beyond its bound."""
LEFT_OPEN = 0.1
"""What most warps' bounds exceed the farthest span by, at most: a part of the time between two anchors in a warp."""
ANCHORS_NS = 132_000
"""Between two anchors, at most, if there are records in between."""
MOST_SHOWN = 8
"""Spans beyond their bound that are described."""
STEADY_NS = 25_000
"""A trace that reports a wider error was recorded while the clocks changed: 0.8 to 16 us on an idle NVIDIA H200."""


@pytest.fixture
def sources() -> ModuleType:
    from . import accuracy_sources

    return accuracy_sources


def sms() -> int:
    return int(cupy.cuda.Device().attributes["MultiProcessorCount"])


def of(trace: kscope.Trace, name: str, column: npt.NDArray[np.generic], blocks: int) -> Float:
    """A column of a region's records, (blocks, rounds) in their order; one warp per block."""
    index = [at for at, region in enumerate(trace.regions) if region.name == name]
    mine = np.isin(trace.region, index)
    order = np.argsort(trace.block[mine], kind="stable")
    return np.asarray(column[mine][order].reshape(blocks, -1), np.float64)


def warm(sources: ModuleType) -> None:
    """A tenth of a second of work, so that the SMs' clock has risen."""
    out = cupy.zeros((sms(), 100, 2), np.int64)
    sources.kernel("spin")((sms(),), (32,), (out, np.int32(2_000_000), np.int32(100)))
    cupy.cuda.Device().synchronize()


@pytest.mark.parametrize("length", [200, 1980, 20_000, 2_000_000])
def test_region_durations_agree_with_the_kernels_own_clock(sources: ModuleType, length: int, table: Table) -> None:
    blocks, rounds = sms(), 20
    out = cupy.zeros((blocks, rounds, 2), np.int64)
    with kscope.profile(records=64) as prof:
        sources.kernel("spin")((blocks,), (32,), (out, np.int32(length), np.int32(rounds)))
    inside, around = (out.get()[..., side].astype(np.float64) for side in (0, 1))
    took = of(prof.trace, "spin", prof.trace.dur_cycles, blocks)
    assert took.shape == (blocks, rounds)
    assert (inside <= took).all() and (took <= around).all()
    error = ((took - inside) / inside)[:, 1:]  # the first round waits for its instructions
    table(
        f"a region of {length:,} cycles",
        f"{np.median(error):.2%} more than its inside, at most {error.max():.2%}",
    )
    if length >= 1980:
        assert error.max() <= 0.02


def test_cycles_convert_to_globaltimer_nanoseconds(sources: ModuleType, table: Table) -> None:
    blocks, rounds, ns = sms(), 5, 100_000
    out = cupy.zeros((blocks, rounds, 2, 2), np.int64)
    warm(sources)
    with kscope.profile(records=64) as prof:
        sources.kernel("asleep")((blocks,), (32,), (out, np.int32(ns), np.int32(rounds)))
    trace, known = prof.trace, out.get().astype(np.float64)
    tick = trace.tick_ns
    for at, name in enumerate(("nanosleep", "timer")):
        took = of(trace, name, trace.dur_ns, blocks)
        inside, around = known[:, :, at, 0], known[:, :, at, 1]
        slack = tick + 2 * trace.warps.error_ns.max() + 0.005 * inside  # for the rate of the SM's clock in this launch
        assert (inside - slack <= took).all() and (took <= around + slack).all()
        error = np.abs(took - inside) / inside
        table(f"100 us by the timer, {name}", f"median error {np.median(error):.3%}, at most {error.max():.3%}")


@pytest.mark.parametrize(
    ("condition", "sessions", "rounds", "pause"),
    [
        ("cold", COLD_SESSIONS, 125, 2_000),
        ("1 ms", 1, 125, 16_000),
        ("2.5 ms beside a matmul", 1, 250, 20_000),
        ("2.5 ms beside a matmul, clock='globaltimer'", 1, 250, 20_000),
        ("40 ms", 1, 250, 320_000),
        ("40 ms beside a matmul", 1, 250, 320_000),
        ("200 ms", 1, 250, 1_600_000),
    ],
)
def test_spans_agree_with_globaltimer_on_every_sm(
    sources: ModuleType, condition: str, sessions: int, rounds: int, pause: int, table: Table
) -> None:
    """Of a million spans in each condition, none begins or ends farther from the timer than its error bound, which is
    not much more than what is seen; and neither is more than three times what simulated clocks make, but for the
    farthest span where the trace reports that the SM clocks changed: how far they jump is the device's.
    """
    warps = SPAN_WARPS * sms()
    launches = -(-SPANS // (sessions * warps * rounds))
    kernel = sources.kernel("now")
    out = cupy.zeros((launches, warps, rounds, 4), np.int64)
    wide = cupy.ones((8192, 8192), np.float16)
    checked = 0
    for _ in range(sessions):
        if condition == "cold":
            time.sleep(1)
        else:
            warm(sources)
        # a record and, in 200 ms, an anchor after each
        with kscope.profile(records=512, clock="globaltimer" if "globaltimer" in condition else "cycles") as prof:
            for one in out:
                if "matmul" in condition:
                    with cupy.cuda.Stream(non_blocking=True):
                        busy = [wide @ wide for _ in range(12)]
                kernel((sms(),), (32 * SPAN_WARPS,), (one, np.int32(pause), np.int32(rounds)))
                cupy.cuda.Device().synchronize()
                busy = None  # noqa: F841  # the products were kept until they were done
        apart = ANCHORS_NS + pause / 1.5
        what, limit = f"by the global timer, {condition}", LIMITS.get(condition)
        checked += check_spans(prof.trace, out.get(), what, table, LEFT_OPEN * apart, limit)
    assert checked >= SPANS


def check_spans(
    trace: kscope.Trace, known: npt.NDArray[np.int64], what: str, table: Table, left_open: float, limit: Limit | None
) -> int:
    """Compare spans with the timer: one shift fits the starts and ends of all of them, within the error of each, which
    exceeds twice the farthest by at most `left_open` ns in most warps.

    known: (launches, warps, rounds, 4), the timer around their starts and around their ends. limit: of the farthest
    span and of most errors. Returns their number.
    """
    launches, warps, rounds, _ = known.shape
    row = (trace.launch * sms() + trace.block) * SPAN_WARPS + trace.warp
    order = np.argsort(row, kind="stable")
    assert len(order) == launches * warps * rounds and (trace.value[order].reshape(-1, rounds) == range(rounds)).all()
    start, took = (column[order].reshape(-1, rounds, 1) for column in (trace.start_ns, trace.dur_ns))
    at = np.concatenate([start, start + took], axis=2)
    error = trace.warps.error_ns[trace.track][order].reshape(-1, rounds, 1)
    bracket = (known - known.min()).astype(np.float64).reshape(-1, rounds, 2, 2)
    # before <= at + shift < behind + tick, within the error
    least, most = bracket[..., 0] - at, bracket[..., 1] + trace.tick_ns - at
    low, high = (least - error).max(), (most + error).min()
    middle = (np.median(least) + np.median(most)) / 2
    shift = np.clip(middle, low, high) if low <= high else middle
    off = np.maximum(np.maximum(least - shift, shift - most), 0.0)
    beyond = np.argwhere((off > error).any(axis=2))
    table(f"{len(order):,} spans {what}", f"{len(beyond):,} beyond their bound; off by up to {off.max():,.0f} ns")
    table("  the trace's own error bounds", reported(trace))
    for lane, at in beyond[:MOST_SHOWN]:
        track = trace.track[order[lane * rounds]]
        table(f"  span {at} of warp {lane}", span_beyond(trace, track, at, off[lane], bracket[lane], error[lane, 0, 0]))
    assert not len(beyond)
    assert np.median(error) <= 2 * off.max() + left_open  # the shift takes up to half of what they are off to one side
    steady = not any(problem.kind == "clock" for problem in trace.problems)
    assert limit is None or np.median(error) <= limit.error
    assert limit is None or not steady or off.max() <= limit.farthest
    return len(order)


def span_beyond(trace: kscope.Trace, track: int, at: int, off: Float, bracket: Float, error: float) -> str:
    """All that is known of a span that is beyond its bound, and of the spans and warps around it.

    off: (rounds, 2) of the warp's starts and ends; bracket: (rounds, 2, 2), the timer around them.
    """
    warps = trace.warps
    same = np.flatnonzero((warps.sm == warps.sm[track]) & (warps.launch == warps.launch[track]))
    mine = f"launch {warps.launch[track]}, SM {warps.sm[track]}, block {warps.block[track]}, warp {warps.warp[track]}"
    life = f"{warps.start_ns[track]:.1f} to {warps.end_ns[track]:.1f} ns, {warps.tick_ns[track]:.9f} ns a cycle"
    around = "; ".join(f"{n}: {np.round(off[n], 1)}" for n in range(max(at - 2, 0), min(at + 3, len(off))))
    others = ", ".join(f"{warps.start_ns[n]:.0f} to {warps.end_ns[n]:.0f}" for n in same)
    return (
        f"{mine}; start and end off by {off[at]} ns, bound {error:.1f} ns; the timer before and behind both"
        f" {bracket[at].tolist()}; warp {life}; bound at its ends {warps.ends_error_ns[track]:.1f} ns; spans around it"
        f" off by {around}; warps of this SM: {others}; {trace.tick_ns} ns a tick"
    )


def reported(trace: kscope.Trace) -> str:
    """A trace's own figures of its alignment."""
    error, ends = trace.warps.error_ns, trace.warps.ends_error_ns
    rates = trace.warps.tick_ns
    problems = "; ".join(problem.text for problem in trace.problems) or "no problems"
    speeds = f"{1 / rates.max():.6f} to {1 / rates.min():.6f} GHz"
    within = f"median {np.median(error):,.0f} ns, at most {error.max():,.0f} ns; {ends.max():.0f} ns at ends"
    return f"{within}; {speeds}; {problems}"


def test_a_chain_of_fmas_takes_four_cycles_each(sources: ModuleType, table: Table) -> None:
    out, rounds = cupy.zeros(32, np.float32), 10
    with kscope.profile(records=64) as prof:
        sources.kernel("chains")((1,), (32,), (out, np.int32(rounds)))
    short, long = (of(prof.trace, name, prof.trace.dur_cycles, 1).min() for name in ("256", "1024"))
    table("dependent FMAs", f"{(long - short) / 768:.3f} cycles each; 256 of them {short:.0f}, 1024 {long:.0f}")
    assert (long - short) / 768 == pytest.approx(4, rel=0.01)
    # the last one is issued before the clock is read, and not waited for
    assert 4 * 1023 < long < 4 * 1024 + 32
    assert 4 * 255 < short < 4 * 256 + 32


def test_warps_leave_a_barrier_together(sources: ModuleType, table: Table) -> None:
    blocks, rounds, warps = sms(), 32, 4
    out = cupy.zeros(32 * warps, np.int32)
    with kscope.profile(records=64) as prof:
        sources.kernel("met")((blocks,), (32 * warps,), (out, np.int32(rounds)))
    trace = prof.trace
    assert len(trace) == 2 * blocks * warps * rounds
    names = np.array([region.name for region in trace.regions])[trace.region]

    def by_round(name: str, column: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        mine = np.flatnonzero(names == name)
        order = mine[np.lexsort((trace.value[mine], trace.warp[mine], trace.block[mine]))]
        return column[order].reshape(blocks, warps, rounds)

    came, left = (by_round("meet", column) for column in (trace.start_ticks, trace.start_ticks + trace.dur_cycles))
    ticks = by_round("after", trace.start_ticks)
    times = by_round("after", trace.start_ns)
    error = by_round("after", trace.warps.error_ns[trace.track])
    early = came.max(axis=1) - left.min(axis=1)  # the last warp arrives before the first one leaves
    apart = ticks.max(axis=1) - ticks.min(axis=1)
    spread = times.max(axis=1) - times.min(axis=1)
    table("warps behind a barrier", f"median {np.median(apart):.0f} cycles apart, at most {apart.max()}")
    table("  the last comes, the first leaves", f"median {-np.median(early):.0f} cycles later, at least {-early.max()}")
    waited = np.sort(left - came, axis=1)
    table(
        "  least and most wait",
        f"median {np.median(waited[:, 0]):.0f}, {np.median(waited[:, -1]):.0f} cycles",
    )
    assert (early <= 0).all()
    assert np.median(apart) < 100
    assert np.median(waited[:, 1:]) > 1900  # all but the one that worked for 2,000 cycles
    # one SM's clock and the axis agree within the trace's own bound
    cycles_ns = apart * trace.warps.tick_ns[0]
    assert (np.abs(spread - cycles_ns) <= 2 * error.max(axis=1) + 1).all()


def steady(trace: kscope.Trace) -> bool:
    """True if the clocks kept their rates: other work on the device makes them change."""
    return float(trace.warps.error_ns.max()) < STEADY_NS and all(problem.kind != "clock" for problem in trace.problems)


def test_signals_between_sms_never_arrive_before_they_are_sent(sources: ModuleType, table: Table) -> None:
    """Blocks 0 and n signal each other and both record their clocks. If the axis is wrong by more than the latency,
    an answer precedes its question. Half the difference of the fastest latencies in both directions estimates the
    offset between two SMs: both signals go through the same cache line."""
    blocks, rounds, few = sms(), 256, 12
    lines = int(sources.FLAGS)
    flags = cupy.zeros(32 * lines * blocks, np.int32)
    out = cupy.zeros((blocks, rounds, 4), np.int64)
    ping = sources.kernel("ping")
    firsts = range(1, blocks, few)
    for _ in range(4):  # after other work the clocks may still be rising or falling: then the bound is wide
        flags.fill(0)
        warm(sources)
        with kscope.profile(records=16) as prof:
            for first in firsts:
                last = np.int32(min(first + few, blocks))
                ping((blocks,), (32,), (flags, out, np.int32(first), last, np.int32(rounds)))
        trace, clocks = prof.trace, out.get()[1:]
        if steady(trace):
            break
    warps = trace.warps
    launches = np.unique(warps.launch)
    assert len(launches) == len(firsts)
    assert len(warps) == blocks * len(launches)
    rows = np.empty((len(launches), blocks), np.int64)
    rows[np.searchsorted(launches, warps.launch), warps.block] = np.arange(len(warps))
    others = np.arange(1, blocks)
    launch = (others - 1) // few
    here, there = rows[launch, 0], rows[launch, others]

    def ns(row: npt.NDArray[np.int64], clock: npt.NDArray[np.int64]) -> Float:
        # a warp's ticks have the low 32 bits of %clock64
        first = warps.first_tick[row][:, None]
        tick = first + ((clock - first) & 0xFFFFFFFF)
        return trace.ns_of(np.repeat(row, clock.shape[1]), tick.ravel()).reshape(clock.shape)

    ways = (ns(there, clocks[..., 1]) - ns(here, clocks[..., 0]), ns(here, clocks[..., 3]) - ns(there, clocks[..., 2]))
    # (blocks - 1, lines): the fastest of the rounds through each line
    forth, back = (way.reshape(blocks - 1, rounds // lines, lines).min(axis=1) for way in ways)
    apart = np.median((forth - back) / 2, axis=1)
    bound = warps.error_ns[here] + warps.error_ns[there]
    for name, way in (("forth", forth), ("back", back)):
        table(
            f"a signal to another SM, {name}", f"{way.min():.0f} to {way.max():.0f} ns, median {np.median(way):.0f} ns"
        )
    per_line = np.median((forth - back) / 2, axis=0)
    table("  all, by lines of memory", ", ".join(f"{one:+.1f}" for one in per_line) + " ns apart in the median")
    size = np.abs(apart)
    table(
        "SMs apart, by signals both ways",
        f"median {np.median(size):.1f} ns, 9 of 10 {np.percentile(size, 90):.1f} ns, at most {size.max():.1f} ns;"
        f" signed median {np.median(apart):+.1f} ns",
    )
    worst = np.argsort(-size)[:6]
    sites = ", ".join(f"SM {warps.sm[there[at]]}: {apart[at]:+.0f} (bound {bound[at]:.0f})" for at in worst)
    table("  the farthest", f"{sites}; from SM {np.unique(warps.sm[here]).tolist()}")
    table("  the trace's own alignment bounds", reported(trace))
    assert (forth > -bound[:, None]).all() and (back > -bound[:, None]).all()
    # how much longer one way may be than the other is known to half of both, and no better
    assert (size <= bound + (forth + back).min(axis=1) / 2).all()
    if not steady(trace):
        return  # the axis is only as exact as its reported error, checked above
    assert (forth > 0).mean() >= 0.95 and (back > 0).mean() >= 0.95
    assert np.median(size) <= 64
    assert np.median(warps.ends_error_ns) <= 64
