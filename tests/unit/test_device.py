"""Device helpers (kscope.clock() etc.): where they may be called, and their values in simulated warps."""

from __future__ import annotations

import numpy as np
import pytest

import kscope
import kscope_sim
from kscope.errors import UsageError
from kscope.instrument import registry
from kscope.language import helpers
from kscope.ptx import READINGS


def test_every_device_helper_has_an_instruction() -> None:
    assert [helper.__name__ for helper in helpers.HELPERS] == list(READINGS)
    assert {helper.__name__ for helper in helpers.HELPERS} <= {*kscope.__all__}


@pytest.mark.parametrize("helper", helpers.HELPERS, ids=lambda helper: helper.__name__)
def test_helpers_raise_outside_of_kernels(helper) -> None:
    with pytest.raises(UsageError, match=rf"kscope.{helper.__name__}\(\) can only be called inside a kernel"):
        helper()


def test_a_frontend_loaded_by_another_thread_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ready(kscope_sim.SimFrontend):
        def read(self, name: str, context: object) -> object:
            return 7 if context is None else None

    monkeypatch.setitem(registry._frontends, "sim", Ready())
    monkeypatch.setattr(registry, "loaded", tuple)  # as it was when this thread looked
    assert kscope.warp_id() == 7


def test_a_simulated_warp_reads_its_position() -> None:
    read = []

    def kernel(warp) -> None:
        warp.work(1_000)  # so that the next block runs on another SM
        read.append((int(kscope.block_id()), int(kscope.warp_id()), int(kscope.smid()), kscope.lane_id().tolist()))

    kscope_sim.launch(kernel, grid=(2, 2), block=64, sms=4)
    expected = [(block, warp) for block in range(4) for warp in range(2)]
    assert sorted((block, warp) for block, warp, _, _ in read) == expected
    assert {sm for _, _, sm, _ in read} == set(range(4))
    assert all(lanes == list(range(32)) for *_, lanes in read)


def test_a_simulated_warps_clocks_go_on_with_its_work() -> None:
    def kernel(warp) -> None:
        began, low, timer = kscope.clock64(), kscope.clock(), kscope.globaltimer()
        warp.work(10_000)
        spent.append((int(kscope.clock64() - began), int(kscope.clock()) - int(low), int(kscope.globaltimer() - timer)))

    spent: list[tuple[int, int, int]] = []
    kscope_sim.launch(kernel, grid=1, block=32)
    ((cycles, low, nanoseconds),) = spent
    assert 10_000 <= cycles < 10_200
    assert (low - cycles) % (1 << 32) in range((1 << 32) - 100, 1 << 32) or abs(low - cycles) < 100
    assert nanoseconds > 1_000


def test_device_helpers_may_be_mark_values() -> None:
    def kernel(warp) -> None:
        with kscope.region("step", value=kscope.warp_id(), strategy=kscope.AllThreads()):
            kscope.instant("lane", kscope.lane_id(), strategy=kscope.AllThreads())

    with kscope.profile() as prof:
        kscope_sim.launch(kernel, grid=1, block=64)
    trace = prof.trace
    names = trace.region_names()[trace.region]
    assert trace.value[names == "step"].tolist() == trace.warp[names == "step"].tolist()
    assert np.array_equal(trace.value[names == "lane"], trace.lane[names == "lane"])
