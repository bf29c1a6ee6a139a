"""The claims of queued launches are learned, and fit into the pool."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from kscope_runtime.forecast import SETTLED_S, Forecast

POOL = 1024  # units


class Gpu:
    """Runs one launch at a time, `ms` apart; the drain frees `freed` units per ms; claims without room are lost.
    Time passes in steps of 0.1 ms."""

    def __init__(self, claims: dict[str, int], ms: float = 0.1, freed: int = 400) -> None:
        self.claims, self.every, self.freed = claims, round(ms * 10), freed / 10
        self.queue: deque[str] = deque()
        self.head = self.lost = self.steps = 0
        self.occupied = 0.0
        self.forecast = Forecast(np.zeros(1, np.uint32), POOL, 0)

    @property
    def now(self) -> float:
        return self.steps * 1e-4

    def step(self) -> None:
        self.steps += 1
        self.occupied = max(0.0, self.occupied - self.freed)
        if self.queue and self.steps % self.every == 0:
            units = self.claims[self.queue.popleft()]
            self.head += units
            granted = min(units, POOL - int(self.occupied))
            self.lost += units - granted
            self.occupied += granted
        self.forecast.read(np.array([self.head], np.uint32), int(self.occupied), self.now)

    def launch(self, kernel: str) -> int:
        """Returns for how many steps it waited."""
        before = self.steps
        while not self.forecast.fits(kernel):
            self.step()
            assert self.steps - before < 1000, "it waits for ever"
        self.forecast.launched(kernel, self.now)
        self.queue.append(kernel)
        return self.steps - before


def test_a_burst_of_launches_never_claims_more_than_the_pool() -> None:
    gpu = Gpu({"matmul": 40})
    for _ in range(500):
        gpu.launch("matmul")
    while gpu.queue:
        gpu.step()
    assert gpu.lost == 0


def test_a_kernel_that_claims_little_is_queued_without_a_wait() -> None:
    gpu = Gpu({"small": 1})
    for _ in range(16):
        gpu.launch("small")
    for _ in range(40):
        gpu.step()
    assert sum(gpu.launch("small") for _ in range(400)) == 0


@pytest.mark.parametrize("ms", [0.1, 0.5, 1.5])
def test_forecasts_handle_alternating_kernels(ms: float) -> None:
    gpu = Gpu({"large": 150, "small": 2, "none": 0}, ms)
    for _ in range(100):
        for kernel in ("large", "small", "none", "small"):
            gpu.launch(kernel)
    while gpu.queue:
        gpu.step()
    assert gpu.lost == 0


def test_a_launch_that_claims_more_than_half_of_the_pool_waits_until_the_others_began() -> None:
    gpu = Gpu({"huge": 900}, freed=4000)
    gpu.launch("huge")
    for _ in range(40):
        gpu.step()
    waits = [gpu.launch("huge") for _ in range(20)]
    while gpu.queue:
        gpu.step()
    assert gpu.lost == 0 and max(waits) <= 10 * SETTLED_S * 1e3 + 10


def test_launches_that_running_kernels_wait_for_are_not_delayed() -> None:
    """They have begun and spin: nothing more is claimed."""
    gpu = Gpu({"spin": 60})
    for _ in range(16):
        gpu.launch("spin")
    gpu.queue.clear()
    waits = [gpu.launch("spin") for _ in range(200)]
    assert max(waits) <= 10 * (SETTLED_S * 1e3 + 1)


def test_forecasts_grow_at_once_and_shrink_slowly() -> None:
    gpu = Gpu({"kernel": 20})
    for _ in range(100):
        gpu.launch("kernel")
    while gpu.queue:
        gpu.step()
    for _ in range(40):
        gpu.step()
    gpu.claims["kernel"] = 200
    gpu.launch("kernel")
    for _ in range(40):
        gpu.step()
    assert sum(gpu.launch("kernel") > 0 for _ in range(20)) > 10
    while gpu.queue:
        gpu.step()
    assert gpu.lost == 0


def test_launches_that_are_captured_into_a_graph_change_no_expectation() -> None:
    """They claim nothing until the graph is replayed."""
    gpu = Gpu({"kernel": 100})
    gpu.launch("kernel")
    for _ in range(40):
        gpu.step()
    for _ in range(200):
        gpu.launch("kernel")
        gpu.queue.clear()
    for _ in range(200):
        gpu.launch("kernel")
    while gpu.queue:
        gpu.step()
    assert gpu.lost == 0


def test_wraparound_and_stale_reads_are_not_counted_as_claims() -> None:
    forecast = Forecast(np.array([0xFFFFFFF0], np.uint32), POOL, 0)
    forecast.launched("kernel", 0)
    forecast.read(np.array([0x10], np.uint32), 32, 0.001)
    forecast.read(np.array([0xFFFFFFF8], np.uint32), 8, 0.0005)
    forecast.read(np.array([0x10], np.uint32), 0, 1)
    for _ in range(16):
        assert forecast.fits("kernel")
        forecast.launched("kernel", 1)
    assert not forecast.fits("kernel")
