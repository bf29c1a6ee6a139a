"""Cycles to nanoseconds, checked against generators with known true times."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st

from kscope.capture import layout
from kscope.capture.capture import Capture
from kscope.capture.capture_data import ClockSync, DeviceCapture
from kscope.trace import Trace, decode

TICK = 32


@dataclass
class Gpu:
    """A GPU's clocks with known true times: SMs count from different offsets, the timer ticks."""

    ns_per_cycle: float = 1000 / 1980
    tick: int = TICK
    seed: int = 0
    lines: list[np.ndarray] = field(default_factory=list)
    truth: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._offset = self._rng.integers(0, 1 << 40, 132)
        self.zero = 1_700_000_000_000_000_000

    def clock(self, sm: int, ns: float) -> int:
        return int(self._offset[sm] + ns / self.ns_per_cycle)

    def anchor(self, sm: int, ns: float) -> tuple[int, int, int]:
        """(clock before, timer, width): the timer is read somewhere in the bracket."""
        width = int(self._rng.integers(8, 40))
        inside = ns + self._rng.uniform(0, width) * self.ns_per_cycle
        return self.clock(sm, ns), (self.zero + int(inside)) // self.tick * self.tick, width

    def warp(self, sm: int, start: float, end: float, grid_id: int = 1, block: int = 0) -> None:
        c0, g0, width = self.anchor(sm, start)
        c1, g1, wide = self.anchor(sm, end)
        middle = (start + end) / 2
        record = synth.Rec("load", self.clock(sm, middle), self.clock(sm, middle) + 100)
        self.lines.append(
            synth.slab(
                [record], start=c0, start_time=g0, end=c1, end_time=g1, sm=sm, grid_id=grid_id, width=width,
                end_width=wide, block=(block, 0, 0), grid=(1 << 20, 1, 1),
            )
        )  # fmt: skip
        self.truth.append(middle)

    def launch(self, grid_id: int, start: float, length: float, warps: int = 400, first: int = 0) -> None:
        for block in range(first, first + warps):
            begin = start + self._rng.uniform(0, 0.3) * length
            self.warp(int(self._rng.integers(132)), begin, begin + length * self._rng.uniform(0.3, 0.7), grid_id, block)

    def trace(self) -> Trace:
        device = synth.device(self.lines, tick_ns=self.tick)
        return decode(Capture(synth.EPOCH, (device,), (synth.module(),), {"block": "sampled"}))

    def errors(self, trace: Trace) -> np.ndarray:
        """Each record's time error after one common shift, which cannot be determined."""
        off = trace.start_ns - np.array(self.truth)
        return np.abs(off - np.median(off))


def kinds(trace: Trace) -> set[str]:
    return {problem.kind for problem in trace.problems}


@pytest.mark.parametrize("length", [20_000.0, 3_000_000.0])
def test_records_of_all_sms_lie_on_one_axis_within_a_tick(length: float) -> None:
    gpu = Gpu()
    gpu.launch(1, 0, length)
    trace = gpu.trace()
    assert gpu.errors(trace).max() < TICK
    assert kinds(trace) == set()


def test_the_rate_is_found_to_a_few_parts_in_a_million() -> None:
    gpu = Gpu()
    gpu.launch(1, 0, 5_000_000)
    assert gpu.trace().warps.tick_ns == pytest.approx(1000 / 1980, rel=1e-5)


def test_time_errors_are_within_their_reported_bounds() -> None:
    for seed in range(5):
        gpu = Gpu(seed=seed)
        gpu.launch(1, 0, 200_000, 200)
        trace = gpu.trace()
        off = trace.start_ns - np.array(gpu.truth)
        spread = np.abs(off - (off.max() + off.min()) / 2)
        assert (spread <= trace.warps.error_ns[trace.track] + trace.warps.error_ns.max() + 1).all()


def test_short_launches_share_the_rate_of_the_whole_recording() -> None:
    gpu = Gpu()
    for index in range(40):
        gpu.launch(index + 1, index * 1e6, 3_000, 20)
    trace = gpu.trace()
    assert gpu.errors(trace).max() < TICK
    assert trace.warps.tick_ns == pytest.approx(1000 / 1980, rel=1e-4)


def test_a_clock_that_changes_between_launches_is_followed() -> None:
    gpu = Gpu()
    gpu.launch(1, 0, 400_000)
    gpu.ns_per_cycle = 1000 / 1200
    gpu.launch(2, 2e6, 400_000)
    trace = gpu.trace()
    first = trace.launch == 0
    assert trace.warps.tick_ns[trace.track[first]] == pytest.approx(1000 / 1980, rel=1e-3)
    assert trace.warps.tick_ns[trace.track[~first]] == pytest.approx(1000 / 1200, rel=1e-3)
    assert gpu.errors(trace).max() < 2 * TICK


def test_a_clock_that_stopped_between_launches_is_followed() -> None:
    gpu = Gpu()
    gpu.launch(1, 0, 400_000)
    gpu._offset -= np.random.default_rng(5).integers(100_000, 1_000_000, 132)
    gpu.launch(2, 2e6, 400_000)
    trace = gpu.trace()
    assert gpu.errors(trace).max() < TICK
    assert "clock" not in kinds(trace)


def test_a_clock_that_changes_within_a_launch_is_a_problem() -> None:
    gpu = Gpu()
    gpu.launch(1, 0, 400_000)
    gpu.ns_per_cycle *= 1.3
    gpu.launch(1, 500_000, 400_000, first=400)
    assert "clock" in kinds(gpu.trace())


def test_launches_shorter_than_a_timer_tick_report_an_unknown_clock_rate() -> None:
    gpu = Gpu()
    gpu.warp(3, 0, 150)
    trace = gpu.trace()
    assert "rate" in kinds(trace)
    assert trace.dur_cycles.tolist() == [100]
    assert 0.2 < trace.warps.tick_ns[0] < 10


def test_unfinished_warps_use_the_clock_rate_of_the_others() -> None:
    gpu = Gpu()
    gpu.launch(1, 0, 400_000)
    c0, g0, width = gpu.anchor(5, 100_000)
    record = synth.Rec("load", gpu.clock(5, 150_000), gpu.clock(5, 150_000) + 10)
    gpu.lines.append(
        synth.slab(
            [record], start=c0, start_time=g0, width=width, sm=5, end=None, block=(777, 0, 0), grid=(1 << 20, 1, 1)
        )
    )
    gpu.truth.append(150_000)
    assert gpu.errors(gpu.trace()).max() < TICK


def test_globaltimer_records_are_nanoseconds_and_short_ones_are_marked() -> None:
    zero = 1_700_000_000_000_000_000
    lines = synth.slab(
        [synth.Rec("load", zero + 64, zero + 96), synth.Rec("load", zero + 96, zero + 96)],
        start=5, end=500, start_time=zero, end_time=zero + 320, flags=layout.FLAG_GLOBALTIMER,
    )  # fmt: skip
    device = synth.device([lines], tick_ns=TICK)
    trace = decode(Capture(synth.EPOCH, (device,), (synth.module(),)))
    assert trace.start_ns.tolist() == [64, 96]
    assert trace.dur_ns.tolist() == [32, 0]
    assert trace.warps.end_ns.tolist() == [320]
    [row] = trace.summary().regions
    assert row.under_tick == 1
    assert "1 span shorter than a tick" in str(trace.summary())


def test_the_timer_tick_is_estimated_from_records() -> None:
    gpu = Gpu(tick=1024)
    gpu.launch(1, 0, 4_000_000, 60)
    trace = decode(Capture(synth.EPOCH, (synth.device(gpu.lines, tick_ns=0),), (synth.module(),), {"block": "some"}))
    assert trace.tick_ns == 1024


def of_two_devices(first_timer: int, second_timer: int) -> Trace:
    """One warp per device; the second starts 700 ns after the first by the host's clock, independent of their
    timers."""
    devices = []
    for ordinal, timer in enumerate((first_timer, second_timer)):
        lines = synth.slab([synth.Rec("load", 2000, 2100)], start_time=timer, end_time=timer + 50_000)
        host = 5_000_000 + 700 * ordinal
        devices.append(DeviceCapture(ordinal, "a", lines, 1, 0, 1, (ClockSync(host, timer, host),)))
    return decode(Capture(synth.EPOCH, tuple(devices), (synth.module(),)))


@pytest.mark.parametrize("timers", [(1000, 900_000_000), (900_000_000, 1000)])
def test_devices_are_put_on_one_axis_by_the_hosts_clock(timers: tuple[int, int]) -> None:
    trace = of_two_devices(*timers)
    assert trace.origin == pytest.approx(5_000_000, abs=10)
    assert trace.start_ns[1] - trace.start_ns[0] == pytest.approx(700, abs=5)


@pytest.mark.parametrize("timers", [(1000, 900_000_000), (900_000_000, 1000)])
def test_launches_of_several_devices_are_in_the_order_of_the_hosts_clock(timers: tuple[int, int]) -> None:
    trace = of_two_devices(*timers)
    assert [launch.device for launch in trace.launches] == [0, 1]
    assert trace.warps.launch.tolist() == [0, 1]


@given(st.lists(st.tuples(*[st.integers(0, (1 << 64) - 1)] * 4), min_size=1, max_size=8))
def test_nonsense_anchors_give_finite_times(anchors: list[tuple[int, int, int, int]]) -> None:
    lines = [
        synth.slab([], start=c0, start_time=g0, end=c1, end_time=g1, block=(i, 0, 0), grid=(9, 1, 1))
        for i, (c0, g0, c1, g1) in enumerate(anchors)
    ]
    trace = decode(synth.capture(*lines))
    assert np.isfinite(trace.warps.start_ns).all()
    assert np.isfinite(trace.warps.tick_ns).all()
