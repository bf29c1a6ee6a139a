"""What a region says against what is known: the kernel's own clocks, chains, barriers, and who was first.

Every bound is one that the trace itself gives (the tick of the timer, the error of its alignment), or that of the
kernel's own readings right inside of a region and right around it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest

import kscope

cupy = pytest.importorskip("cupy")
Table = Callable[[str, str], None]
Float = npt.NDArray[np.float64]


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
def test_a_region_lasts_as_long_as_the_kernels_own_clock_says(sources: ModuleType, length: int, table: Table) -> None:
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
        f"a region of {length:,} cycles", f"says {np.median(error):.2%} more than its inside, at most {error.max():.2%}"
    )
    if length >= 1980:
        assert np.median(error) <= 0.02


def test_cycles_become_the_nanoseconds_of_the_global_timer(sources: ModuleType, table: Table) -> None:
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


def test_a_chain_of_fmas_takes_four_cycles_each(sources: ModuleType, table: Table) -> None:
    out, rounds = cupy.zeros(32, np.float32), 10
    with kscope.profile(records=64) as prof:
        sources.kernel("chains")((1,), (32,), (out, np.int32(rounds)))
    short, long = (of(prof.trace, name, prof.trace.dur_cycles, 1).min() for name in ("256", "1024"))
    table("dependent FMAs", f"{(long - short) / 768:.3f} cycles each; 256 of them {short:.0f}, 1024 {long:.0f}")
    assert (long - short) / 768 == pytest.approx(4, rel=0.02)
    assert 4 * 1024 <= long <= 4 * 1024 * 1.03


def test_warps_that_meet_at_a_barrier_go_on_together(sources: ModuleType, table: Table) -> None:
    blocks, rounds, warps = sms(), 32, 4
    out = cupy.zeros(32 * warps, np.int32)
    with kscope.profile(records=64) as prof:
        sources.kernel("met")((blocks,), (32 * warps,), (out, np.int32(rounds)))
    trace = prof.trace
    assert len(trace) == blocks * warps * rounds
    order = np.lexsort((trace.value, trace.warp, trace.block))
    ticks = trace.start_ticks[order].reshape(blocks, warps, rounds)
    times = trace.start_ns[order].reshape(blocks, warps, rounds)
    error = trace.warps.error_ns[trace.track[order]].reshape(blocks, warps, rounds)
    apart = ticks.max(axis=1) - ticks.min(axis=1)
    spread = times.max(axis=1) - times.min(axis=1)
    table("warps behind a barrier", f"median {np.median(apart):.0f} cycles apart, at most {apart.max()}")
    assert np.median(apart) < 100
    # what the clock of one SM says, and what the axis makes of it: the same but for the bound that the trace tells
    cycles_ns = apart * trace.warps.tick_ns[0]
    assert (np.abs(spread - cycles_ns) <= 2 * error.max(axis=1) + 1).all()


def test_no_answer_comes_before_its_question_on_any_sm(sources: ModuleType, table: Table) -> None:
    """Signals go both ways between block 0 and every other: half of what the two ways differ by, at their fastest, is
    how far the axis sets the two SMs apart, as both ways are equally long."""
    blocks, rounds = sms(), 20
    flags = cupy.zeros(32 * blocks, np.int32)
    warm(sources)
    with kscope.profile(records=8192) as prof:
        sources.kernel("ping")((blocks,), (32,), (flags, np.int32(rounds)))
    trace = prof.trace
    assert len(trace) == 4 * (blocks - 1) * rounds
    names = np.array([region.name for region in trace.regions])[trace.region]
    at: dict[str, Float] = {}
    for name in ("call", "heard", "answer", "answered"):
        mine = names == name
        order = np.argsort(trace.value[mine])
        at[name] = np.asarray(trace.start_ns[mine][order].reshape(blocks - 1, rounds), np.float64)
    forth = (at["heard"] - at["call"]).min(axis=1)
    back = (at["answered"] - at["answer"]).min(axis=1)
    error = np.zeros(blocks)
    np.maximum.at(error, trace.warps.block, trace.warps.error_ns)
    bound = error[1:] + error[0]
    offset = np.abs(forth - back) / 2
    table("SMs apart, by signals both ways", f"median {np.median(offset):.0f} ns, at most {offset.max():.0f} ns")
    table("  what the trace says of its alignment", f"within {error.max():.0f} ns")
    assert (forth >= -bound).all() and (back >= -bound).all()
    assert (offset <= bound + trace.tick_ns).all()
