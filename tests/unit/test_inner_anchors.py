"""Anchors among the records of long warps, on simulated SMs whose clocks change and whose true time is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from simulated import capture as recorded

import kscope
import kscope_sim
from kscope import native
from kscope.capture import layout, wire
from kscope.capture.capture import Capture
from kscope.decoding import axis
from kscope.decoding.anchors import Rows
from kscope.decoding.slabs import find
from kscope.instrument.recording import Recording
from kscope.trace import Trace, decode
from kscope_sim import Warp
from kscope_sim.machine import POWER_ON_NS

Float = npt.NDArray[np.float64]
SMS = 2
EDGE = wire.ANCHOR_STEPS << wire.STEP_SHIFT


@dataclass(frozen=True)
class Unsteady(kscope_sim.Machine):
    """A machine whose clocks run as `speed` says: GHz of an SM at times in ns, up to `length` ns."""

    speed: Callable[[int, Float], Float] = field(default=lambda sm, ns: np.full(len(ns), 1.98))
    length: float = 1e6

    @cached_property
    def table(self) -> tuple[Float, list[Float]]:
        at = np.linspace(0, 1.2 * self.length, 40_001)
        speeds = [self.speed(sm, at) for sm in range(self.sms)]
        return at, [np.concatenate([[0.0], np.cumsum((s[1:] + s[:-1]) / 2 * np.diff(at))]) for s in speeds]

    def cycles(self, sm: int, ns: float) -> int:
        at, count = self.table
        return round(float(np.interp(ns, at, count[sm])))

    def ns(self, sm: int, cycles: int) -> float:
        at, count = self.table
        return float(np.interp(cycles, count[sm], at))


def falls(sm: int, ns: Float) -> Float:
    """Slower and slower, each SM by another amount."""
    return 1.98 - (0.2 + 0.05 * sm) * ns / ns[-1]


def jumps(sm: int, ns: Float) -> Float:
    """A tenth of the time at full speed, then power-limited, and back."""
    phase = (ns / ns[-1] * 3 + 0.1 * sm) % 1
    return np.where(phase < 0.1, 1.98, np.where(phase < 0.7, 1.6, 1.85))


@dataclass(frozen=True)
class Seen:
    """off: how far the ends of records are from the truth, ns; error: what the trace says that they may be."""

    trace: Trace
    off: Float
    error: Float


def unsteady(speed: Callable[[int, Float], Float], length: float, rounds: int) -> tuple[Capture, Float, Float]:
    """A capture of one warp per SM, and the true times of its starts and ends, (SM, round)."""
    machine = Unsteady(sms=SMS, speed=speed, length=length)
    pause = int(1.7 * length / rounds)
    truth: dict[tuple[int, int], list[float]] = {}

    def kernel(warp: Warp) -> None:
        for number in range(rounds):
            mine = truth.setdefault((warp.smid, number), [])
            mine.append(machine.ns(warp.smid, warp.now))
            with kscope.region("work", value=number):
                warp.work(pause // 2)
                mine.append(machine.ns(warp.smid, warp.now))
            warp.work(pause // 2)

    made = recorded(kernel, recording=Recording(records=1024), machine=machine, grid=SMS)
    known = np.array([[truth[sm, number] for number in range(rounds)] for sm in range(SMS)])
    return made, known[..., 0], known[..., 1]


def decoded(made: Capture, starts: Float, ends: Float) -> Seen:
    trace = decode(made)
    order = np.lexsort((trace.value, trace.warps.sm[trace.track]))
    shift = trace.origin - POWER_ON_NS
    found = [trace.start_ns[order] + shift, (trace.start_ns + trace.dur_ns)[order] + shift]
    off = np.maximum(*(np.abs(one - true.ravel()) for one, true in zip(found, (starts, ends), strict=True)))
    return Seen(trace, off, trace.warps.error_ns[trace.track][order])


def with_two_anchors(monkeypatch: pytest.MonkeyPatch, made: Capture, starts: Float, ends: Float) -> Seen:
    """The same, decoded as if the warps had only the anchors at their ends."""

    def none(inner: object, anchors: Any, slabs: object, sm: Any, *rest: object) -> Any:
        return anchors, Rows.of(sm[anchors.slab])

    with monkeypatch.context() as patch:
        patch.setattr(axis, "added", none)
        return decoded(made, starts, ends)


@pytest.mark.parametrize("speed", [falls, jumps])
@pytest.mark.parametrize("length", [2.5e6, 4e7, 1.98e8])
def test_bounds_are_as_wide_as_the_truth_and_much_tighter_than_with_two_anchors(
    speed: Callable[[int, Float], Float], length: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = unsteady(speed, length, rounds=250)
    seen, before = decoded(*known), with_two_anchors(monkeypatch, *known)
    assert len(seen.off) == SMS * 250
    assert (seen.off <= seen.error).all() and (before.off <= before.error).all()
    assert seen.error.max() <= 1.1 * seen.off.max() + 12_000
    assert 2 * seen.error.max() <= before.error.min()


@pytest.mark.skipif(not native.available(), reason="kscope was installed without a C compiler")
@pytest.mark.parametrize("speed", [falls, jumps])
def test_numpy_finds_the_same_bounds(speed: Callable[[int, Float], Float], monkeypatch: pytest.MonkeyPatch) -> None:
    made, starts, ends = unsteady(speed, 2.5e6, rounds=250)
    compiled = decoded(made, starts, ends)
    monkeypatch.setenv("KSCOPE_NATIVE", "0")
    plain = decoded(made, starts, ends)
    np.testing.assert_allclose(compiled.trace.warps.error_ns, plain.trace.warps.error_ns, rtol=1e-9, atol=1e-3)
    np.testing.assert_allclose(compiled.trace.start_ns, plain.trace.start_ns, rtol=1e-9, atol=1e-3)
    again, _, _ = unsteady(speed, 2.5e6, rounds=250)  # the host expands slabs without compiled loops
    assert (again.devices[0].lines == made.devices[0].lines).all()


def loop(warp: Warp, rounds: int, cycles: int) -> None:
    for number in range(rounds):
        with kscope.region("work", value=number):
            warp.work(cycles)


def headers(made: Capture) -> Any:
    slabs, problems = find(made.devices[0].lines, made.epoch)
    assert not problems
    return slabs.header


def ids(made: Capture) -> list[int]:
    rows = made.devices[0].lines.reshape(-1, 4)[layout.HEADER_BYTES // layout.RECORD_BYTES :]
    return [int(row[1]) for row in rows if row[1] in (layout.ANCHOR_ID, layout.LAST_ANCHOR_ID)]


@pytest.mark.parametrize("clock", ["cycles", "globaltimer"])
def test_short_warps_and_warps_that_record_the_timer_have_none(clock: Any) -> None:
    rounds = 100 if clock == "globaltimer" else 1
    made = recorded(loop, recording=Recording(records=256, clock=clock), args=(rounds, EDGE * 3 // 4 - 200), sms=1)
    assert not ids(made) and headers(made)["anchors"].tolist() == [0]


@pytest.mark.parametrize("fill", ["ring", "stop"])
@pytest.mark.parametrize(("records", "rounds"), [(256, 100), (64, 100), (4, 100), (64, 2000)])
def test_records_are_counted_exactly_beside_anchors(records: int, rounds: int, fill: Any) -> None:
    cycles = EDGE // 2 if rounds == 100 else 300
    made = recorded(loop, recording=Recording(records=records, fill=fill), args=(rounds, cycles), sms=1)
    trace = decode(made)
    assert trace.warps.written.tolist() == [rounds]
    anchors = int(headers(made)["anchors"][0])
    assert anchors >= (3 if fill == "ring" else 0) and int(headers(made)["count"][0]) == rounds + anchors
    values = trace.value.tolist()
    assert len(values) >= min(records, rounds) // 2 - 1
    assert values == (list(range(len(values))) if fill == "stop" else list(range(rounds - len(values), rounds)))
    lost = {problem.kind: problem.count for problem in trace.problems if problem.kind in ("overwritten", "refused")}
    dropped = rounds - len(values)
    assert lost == ({} if not dropped else {"refused" if fill == "stop" else "overwritten": dropped})


def test_an_unfinished_warp_keeps_its_anchors() -> None:
    def hangs(warp: Warp) -> None:
        loop(warp, 100, EDGE)
        warp.trap()

    made = recorded(hangs, recording=Recording(records=256), sms=1)
    trace = decode(made)
    assert len(trace) == 100 and headers(made)["anchors"].tolist() == [100]
    assert trace.warps.written.tolist() == [100]


def test_damaged_anchors_change_no_record() -> None:
    rng = np.random.default_rng(3)
    made = recorded(loop, recording=Recording(records=256), args=(100, EDGE), sms=1)
    whole, lines = decode(made), made.devices[0].lines
    rows = lines.reshape(-1, 4)
    for _ in range(40):
        before = lines.copy()
        at = rng.choice(np.flatnonzero(rows[:, 1] == layout.ANCHOR_ID), 20)
        rows[at, rng.integers(0, 4, 20) // 2 * 2 + rng.integers(0, 2, 20)] ^= rng.integers(1, 1 << 32, 20, np.uint32)
        damaged = decode(made)
        kept = [region.known for region in damaged.regions]
        assert (damaged.dur_cycles[[kept[one] for one in damaged.region]] == whole.dur_cycles).all()
        lines[:] = before
