"""kscope.clock() and its like: where they may be called, and what a simulated warp is told."""

from __future__ import annotations

import numpy as np
import pytest

import kscope
import kscope_sim
from kscope.errors import UsageError
from kscope.instrument import registry
from kscope.language import device
from kscope.ptx import READINGS


def test_the_words_and_their_instructions_are_the_same_set() -> None:
    assert [word.__name__ for word in device.HELPERS] == list(READINGS)
    assert {word.__name__ for word in device.HELPERS} <= {*kscope.__all__}


@pytest.mark.parametrize("word", device.HELPERS, ids=lambda word: word.__name__)
def test_outside_of_kernels_there_is_nothing_to_ask(word) -> None:
    with pytest.raises(UsageError, match=rf"kscope.{word.__name__}\(\) can only be called inside a kernel"):
        word()


def test_a_frontend_that_another_thread_has_just_taken_into_use_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ready(kscope_sim.SimFrontend):
        def read(self, name: str, context: object) -> object:
            return 7 if context is None else None

    monkeypatch.setitem(registry._frontends, "sim", Ready())
    monkeypatch.setattr(registry, "loaded", tuple)  # as it was when this thread looked
    assert kscope.warp_id() == 7


def test_a_simulated_warp_is_told_its_place() -> None:
    told = []

    def kernel(warp) -> None:
        warp.work(1_000)  # so that the next block goes to another SM
        told.append((int(kscope.block_id()), int(kscope.warp_id()), int(kscope.smid()), kscope.lane_id().tolist()))

    kscope_sim.launch(kernel, grid=(2, 2), block=64, sms=4)
    expected = [(block, warp) for block in range(4) for warp in range(2)]
    assert sorted((block, warp) for block, warp, _, _ in told) == expected
    assert {sm for _, _, sm, _ in told} == set(range(4))
    assert all(lanes == list(range(32)) for *_, lanes in told)


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


def test_a_helper_is_a_value_of_a_mark() -> None:
    def kernel(warp) -> None:
        with kscope.region("step", value=kscope.warp_id(), strategy=kscope.AllThreads()):
            kscope.instant("lane", kscope.lane_id(), strategy=kscope.AllThreads())

    with kscope.profile() as prof:
        kscope_sim.launch(kernel, grid=1, block=64)
    trace = prof.trace
    names = trace.region_names()[trace.region]
    assert trace.value[names == "step"].tolist() == trace.warp[names == "step"].tolist()
    assert np.array_equal(trace.value[names == "lane"], trace.lane[names == "lane"])
