"""A backend over a fake driver, with the drain's passes in the test's own hands."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from kscope.instrument.subset import Subset
from kscope_runtime import CudaBackend
from kscope_runtime.device import Device
from kscope_runtime.drain import Drain
from kscope_runtime.memory_ranges import Bytes, Ranges, read_each
from kscope_runtime.pool import least

from .fake import FakeDriver, Gpu
from .fake_time import Clock

MODULE = 7


class Outside:
    """Another process's view of a GPU's memory."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def synchronize(self, stream: int) -> None:
        pass

    def read(self, into: Bytes, address: int, stream: int) -> None:
        into[:] = self.gpu.view(address, into.nbytes)

    def read_ranges(self, into: Bytes, ranges: Ranges, stream: int) -> None:
        read_each(self, into, ranges, stream)


class Bench:
    """One armed GPU of four SMs with the smallest pool: rings of 64 units."""

    def __init__(self, *gpus: Gpu, salvaged: bool = False) -> None:
        self.driver = FakeDriver(*gpus)
        self.gpu = self.driver.gpus[0]
        if salvaged:
            self.backend = CudaBackend(self.driver, salvage=lambda ordinal, memory: nullcontext(Outside(self.gpu)))
        else:
            self.backend = CudaBackend(self.driver)
        self.module = self.gpu.module(MODULE)
        self.pool = least(self.gpu.facts.sms)

    def arm(self, epoch: int = 1) -> Bench:
        self.backend.arm(epoch, Subset(), self.pool)
        self.backend.module_loaded(MODULE)
        self.memory = self.gpu.memory(MODULE)
        return self

    @property
    def drain(self) -> Drain:
        return self.backend._drains[1]

    def take(self) -> None:
        """A pass over everything that is claimed."""
        self.drain._passes.everything(closed=True)


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread: passes happen where the test makes them. No store is old: any may arrive late."""
    monkeypatch.setattr(Drain, "start", lambda self: None)
    monkeypatch.setattr(Device, "surely_past", lambda self: 0)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is seen a second time has settled."""
    monkeypatch.setattr("kscope_runtime.overrun_slabs.SETTLED_S", 0.0)


@pytest.fixture
def bench(by_hand: None) -> Callable[..., Bench]:
    return Bench


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time that passes only in sleeps of launches."""
    made = Clock()
    for name in ("drain", "drain_pass", "pool_room"):
        monkeypatch.setattr(f"kscope_runtime.{name}.time", made)
    return made
