"""The CUDA backend over a fake driver: arming, and the state after failures."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from forked import refusal
from waiting import PATIENCE_S

from kscope.capture import wire
from kscope.decoding import slabs
from kscope.errors import DriverError, UsageError
from kscope.instrument import registry
from kscope.instrument.subset import Subset
from kscope.session.profile import profile
from kscope_runtime import CudaBackend
from kscope_runtime.drain import Drain

from .conftest import MODULE, Bench
from .fake import KERNEL, FakeDriver, Gpu, Lane, described

Make = Callable[..., Bench]


def found(bench: Bench, epoch: int = 1, *, wait: bool = True) -> list[int]:
    """Blocks whose slabs were collected."""
    (device,) = bench.backend.collect(wait=wait)
    return sorted(slabs.find(device.lines, epoch)[0].header["ctaid_x"].tolist())


def test_prepared_modules_receive_the_control_block_address(bench: Make) -> None:
    rig = bench()
    rig.backend.module_loaded(MODULE)
    assert rig.gpu.bound(MODULE) != 0
    assert rig.gpu.memory(MODULE).gate["epoch"] == 0
    assert [kernel.name for meta in rig.backend.modules() for kernel in meta.kernels] == ["kernel"]


def test_the_backend_is_open_between_arming_and_disarming(bench: Make) -> None:
    rig = bench()
    rig.backend.module_loaded(MODULE)
    answers = [rig.backend.is_open()]
    for change in (lambda: rig.backend.arm(1, Subset(), None), rig.backend.disarm, rig.backend.resume):
        change()
        answers.append(rig.backend.is_open())
    assert answers == [False, True, False, True]


def test_a_plain_module_costs_nothing(bench: Make) -> None:
    rig = bench()
    rig.gpu.module(8, prepared=False)
    rig.backend.module_loaded(8)
    assert "allocate" not in rig.driver.calls and rig.backend.modules() == ()


def test_modules_are_armed_with_capture_relaxed(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = bench()
    modes: list[int] = []
    call = FakeDriver._call
    monkeypatch.setattr(FakeDriver, "_call", lambda self, name: (modes.append(self.strict[-1]), call(self, name))[1])
    rig.backend.module_loaded(MODULE)
    assert modes and set(modes) == {1}
    assert rig.driver.strict == [0]


def test_pause_snapshot_and_end_do_not_break_a_graph_capture_in_another_thread(
    bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for a stream is forbidden while another thread captures a graph, and may end that capture."""
    rig = bench().arm()
    modes: list[tuple[str, int]] = []
    call = FakeDriver._call
    monkeypatch.setattr(
        FakeDriver, "_call", lambda self, name: (modes.append((name, self.strict[-1])), call(self, name))[1]
    )
    rig.backend.disarm()
    rig.backend.resume()
    rig.backend.collect(wait=False)
    rig.backend.disarm()
    rig.backend.wait()
    rig.backend.collect(wait=True)
    assert "synchronize_context" in dict(modes)
    assert [name for name, mode in modes if mode == 0] == []
    assert rig.driver.strict == [0]


def test_a_second_module_allocates_nothing(bench: Make) -> None:
    rig = bench().arm()
    rig.gpu.module(9)
    rig.driver.calls.clear()
    rig.backend.module_loaded(9)
    assert not {"allocate", "pinned", "stream", "load", "synchronize_context"} & set(rig.driver.calls)
    assert rig.gpu.bound(9) == rig.gpu.bound(MODULE)


@pytest.mark.parametrize("meta", [b"", b"{}\0", b"not JSON\0"])
def test_modules_with_invalid_metadata_are_not_armed(bench: Make, meta: bytes) -> None:
    rig = bench().arm()
    rig.gpu.module(9, meta=meta)
    rig.backend.module_loaded(9)
    assert rig.gpu.bound(9) == 0
    assert [problem.kind for problem in rig.backend.problems()] == ["metadata"]


def test_names_outlive_the_module(bench: Make) -> None:
    rig = bench().arm()
    rig.gpu.module(9, meta=described(name="gone"))
    rig.backend.module_loaded(9)
    del rig.gpu.modules[9]
    names = [kernel.name for meta in rig.backend.modules() for kernel in meta.kernels]
    assert names == ["kernel", "gone"]


def test_a_module_loaded_twice_is_described_once(bench: Make) -> None:
    rig = bench().arm()
    rig.gpu.module(9)
    rig.backend.module_loaded(9)
    assert len(rig.backend.modules()) == 1


def test_nothing_records_before_arm_and_after_disarm(bench: Make) -> None:
    rig = bench()
    rig.backend.module_loaded(MODULE)
    assert Lane(rig.gpu.memory(MODULE)).run().slab is None
    rig.arm()
    assert Lane(rig.memory, block=1).run().slab is not None
    rig.backend.disarm()
    assert Lane(rig.memory, block=2).run().slab is None
    rig.backend.resume()
    assert Lane(rig.memory, block=3).run().slab is not None
    assert found(rig) == [1, 3]


def test_every_session_has_its_own_records(bench: Make) -> None:
    rig = bench().arm(epoch=1)
    Lane(rig.memory, block=1).run()
    rig.backend.disarm()
    assert found(rig, 1) == [1]
    rig.arm(epoch=2)
    Lane(rig.memory, block=2).run()
    assert found(rig, 2) == [2]


def test_a_reset_drops_what_was_claimed_before(bench: Make) -> None:
    rig = bench().arm(epoch=1)
    Lane(rig.memory, block=1).run()
    rig.drain._passes.once(share=1 << 20)
    late = Lane(rig.memory, block=2).claim()
    rig.arm(epoch=2)
    late.begin().record().leave()
    Lane(rig.memory, block=3).run()
    assert found(rig, 2) == [3]


def test_hung_warps_are_in_the_capture(bench: Make) -> None:
    rig = bench().arm()
    Lane(rig.memory, block=5).claim().begin().record(2)
    assert found(rig, wait=False) == [5]
    (device,) = rig.backend.collect(wait=True)
    slab, _ = slabs.find(device.lines, 1)
    assert not slab.finished[0]


def test_collecting_waits_for_kernels_that_run(bench: Make) -> None:
    rig = bench().arm()
    lane = Lane(rig.memory, block=5).claim().begin()
    rig.driver.running.append(lambda: (time.sleep(0.1), lane.record().leave()))
    (device,) = rig.backend.collect(wait=True)
    slab, _ = slabs.find(device.lines, 1)
    assert slab.finished[0]


def test_sessions_wait_for_unstarted_blocks_before_closing_the_gate(bench: Make) -> None:
    rig = bench().arm()
    rig.driver.running.append(lambda: (time.sleep(0.1), Lane(rig.memory, block=5).claim().begin().record().leave()))
    rig.backend.wait()
    rig.backend.disarm()
    assert found(rig) == [5]


def test_the_pool_is_kept_between_sessions_and_replaced_when_another_size_is_requested(bench: Make) -> None:
    rig = bench().arm()
    pool = rig.drain.device.pool
    rig.backend.disarm()
    rig.backend.collect(wait=True)
    rig.arm(epoch=2)
    assert rig.drain.device.pool == pool
    rig.backend.disarm()
    rig.backend.collect(wait=True)
    rig.pool *= 4
    rig.arm(epoch=3)
    now = rig.drain.device.pool
    assert now is not None and pool is not None
    assert now.address != pool.address and pool.address not in rig.gpu.blocks
    for block in range(300):
        Lane(rig.memory, sm=block % 4, block=block).run()
    assert found(rig, 3) == list(range(300))


def test_sessions_wait_for_kernels_even_if_no_thread_can_start(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = bench().arm()
    lane = Lane(rig.memory, block=5).claim().begin()
    rig.driver.running.append(lambda: lane.record().leave())

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    rig.backend.wait()
    assert rig.driver.running == []
    rig.backend.disarm()
    assert found(rig) == [5]


def test_a_pool_is_not_replaced_under_a_warp_that_writes(bench: Make) -> None:
    rig = bench().arm()
    lane = Lane(rig.memory, block=1).claim().begin()
    rig.driver.running.append(lambda: lane.record().leave())
    rig.pool *= 4
    rig.arm(epoch=2)  # the lane ends in the wait, before its memory goes
    Lane(rig.memory, block=2).run()
    assert found(rig, 2) == [2]


def test_the_default_pool_is_a_32nd_of_what_is_free(by_hand: None) -> None:
    rig = Bench(Gpu(free=128 << 20))
    rig.backend.arm(1, Subset(), None)
    assert rig.drain.device.rings is not None
    assert 2 << 20 < rig.drain.device.rings.total <= 4 << 20


def test_the_default_pool_is_at_least_what_the_device_needs(by_hand: None) -> None:
    rig = Bench(Gpu(free=100_000))
    rig.backend.arm(1, Subset(), None)
    assert rig.drain.device.rings is not None
    assert rig.drain.device.rings.total <= 20480


def test_a_pool_that_is_too_small_is_refused(bench: Make) -> None:
    rig = bench()
    with pytest.raises(UsageError, match=r"pool=100: .*4 SMs needs at least 20480 bytes"):
        rig.backend.arm(1, Subset(), 100)


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (1 << 40, r"needs \d+ bytes of device memory, 30000 are free: pass a smaller profile\(pool=bytes\)"),
        (None, r"needs \d+ bytes of device memory, 30000 are free: free some before the session"),
    ],
)
def test_a_pool_larger_than_free_memory_is_refused_with_the_remedy(
    by_hand: None, monkeypatch: pytest.MonkeyPatch, pool: int | None, message: str
) -> None:
    rig = Bench(Gpu(free=30_000))
    rig.backend.module_loaded(MODULE)

    def refuse(self: FakeDriver, size: int) -> int:
        raise DriverError("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", 2)

    monkeypatch.setattr(FakeDriver, "allocate", refuse)
    with pytest.raises(DriverError, match=message):
        rig.backend.arm(1, Subset(), pool)


def test_a_second_device_joins_the_session_when_it_is_first_used(by_hand: None) -> None:
    rig = Bench(Gpu(0), Gpu(1, sms=2)).arm()
    Lane(rig.memory, block=1).run()
    rig.driver.current = 2
    second = rig.driver.gpus[1]
    second.module(20)
    rig.backend.module_loaded(20)
    Lane(second.memory(20), block=2).run()
    assert rig.driver.current == 2
    rig.backend.disarm()
    first, other = rig.backend.collect(wait=True)
    assert (first.ordinal, other.ordinal) == (0, 1) and other.sms == 2
    assert slabs.find(first.lines, 1)[0].header["ctaid_x"].tolist() == [1]
    assert slabs.find(other.lines, 1)[0].header["ctaid_x"].tolist() == [2]
    assert second.memory(20).gate["epoch"] == 0
    assert rig.driver.current == 2


def test_failing_to_arm_one_device_arms_none(by_hand: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Bench(Gpu(0), Gpu(1, sms=400))
    rig.backend.module_loaded(MODULE)
    rig.driver.current = 2
    rig.driver.gpus[1].module(20)
    rig.backend.module_loaded(20)
    monkeypatch.setattr(registry, "_backends", {"cuda": rig.backend})
    prof = profile(pool=rig.pool)
    prof._epoch = 5
    with pytest.raises(UsageError, match="400 SMs needs at least"):
        prof._arm(rig.backend)
    assert rig.gpu.memory(MODULE).gate["epoch"] == 0
    rig.driver.gpus[1].module(21)
    rig.backend.module_loaded(21)  # outside a session, no device is armed


def test_a_device_that_is_first_used_in_a_pause_joins_after_it(by_hand: None) -> None:
    rig = Bench(Gpu(0), Gpu(1)).arm()
    rig.backend.disarm()
    rig.driver.current = 2
    rig.driver.gpus[1].module(20)
    rig.backend.module_loaded(20)
    memory = rig.driver.gpus[1].memory(20)
    assert Lane(memory).run().slab is None
    rig.backend.resume()
    assert Lane(memory).run().slab is not None


def test_another_process_salvages_every_record_of_a_broken_context(bench: Make) -> None:
    rig = bench(salvaged=True).arm()
    Lane(rig.memory, block=1).run()
    rig.drain._passes.once(share=1 << 20)
    Lane(rig.memory, block=2).run()
    Lane(rig.memory, block=3).claim().begin().record()  # of the kernel that broke it
    rig.driver.broken = ("CUDA_ERROR_ILLEGAL_ADDRESS", 700)
    rig.backend.wait()
    rig.backend.disarm()
    assert found(rig) == [1, 2, 3]
    (problem,) = rig.backend.problems()
    assert problem.kind == "driver" and "the records written until then are in the capture" in problem.text


def test_a_broken_context_shows_which_launches_began_also_those_without_any_head(bench: Make) -> None:
    """What a fault may take first are the stores of its own launch."""
    rig = bench(salvaged=True).arm()
    Lane(rig.memory, block=1).run()
    Lane(rig.memory, block=2, grid=5).claim()  # the launch's entry is there, the head is not
    rig.driver.broken = ("CUDA_ERROR_ILLEGAL_ADDRESS", 700)
    rig.backend.wait()
    assert found(rig) == [1]
    (device,) = rig.backend.collect(wait=True)
    assert {(launch.kernel, launch.grid_id) for launch in device.begun} == {(KERNEL, 2), (KERNEL, 5)}


def test_a_healthy_context_lists_no_launches(bench: Make) -> None:
    rig = bench(salvaged=True).arm()
    Lane(rig.memory, block=1).run()
    (device,) = rig.backend.collect(wait=True)
    assert device.begun == ()


def test_a_session_in_a_broken_context_is_refused_with_the_drivers_error(bench: Make) -> None:
    rig = bench(salvaged=True).arm()
    rig.driver.broken = ("CUDA_ERROR_ILLEGAL_ADDRESS", 700)
    rig.backend.disarm()
    rig.backend.collect(wait=True)
    with pytest.raises(DriverError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        rig.backend.arm(2, Subset(), rig.pool)


def test_a_recovered_context_keeps_recording_without_duplicates(bench: Make) -> None:
    rig = bench(salvaged=True).arm()
    Lane(rig.memory, block=1).run()
    rig.driver.broken = ("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", 900)
    rig.backend.disarm()
    rig.driver.broken = None
    assert found(rig, wait=False) == [1]
    assert found(rig) == [1]
    rig.arm(epoch=2)
    Lane(rig.memory, block=2).run()
    rig.backend.disarm()
    assert found(rig, 2) == [2]


def test_a_context_failing_at_any_call_of_a_drain_pass_neither_loses_nor_duplicates_records(bench: Make) -> None:
    calls = 0
    while True:
        rig = bench(salvaged=True).arm()
        for block in range(12):
            Lane(rig.memory, sm=block % 4, block=block).run()
        broke = break_after(rig.driver, calls)
        with suppress(DriverError):
            rig.drain._passes.everything(closed=True)
        if not broke():
            break
        assert found(rig) == list(range(12)), f"broken after {calls} calls"
        calls += 1
    assert calls > 10


def break_after(driver: FakeDriver, calls: int) -> Callable[[], bool]:
    """Break the context after that many further calls. Returns a function: whether it broke."""
    left = itertools.count(calls, -1)
    call = driver._call

    def counted(name: str) -> Gpu:
        if next(left) <= 0:
            driver.broken = ("CUDA_ERROR_LAUNCH_FAILED", 719)
        return call(name)

    driver._call = counted  # type: ignore[method-assign]
    return lambda: driver.broken is not None


def test_a_broken_context_keeps_drained_records_and_reports_a_problem(bench: Make) -> None:
    rig = bench().arm()
    Lane(rig.memory, block=1).run()
    rig.drain._passes.once(share=1 << 20)
    Lane(rig.memory, block=2).run()
    rig.driver.broken = ("CUDA_ERROR_ILLEGAL_ADDRESS", 700)
    rig.backend.disarm()
    assert found(rig) == [1]
    (problem,) = rig.backend.problems()
    assert problem.kind == "driver" and "CUDA_ERROR_ILLEGAL_ADDRESS (700)" in problem.text
    assert "the rest is lost: this driver cannot share device memory" in problem.text


def test_a_broken_context_ends_the_drain_thread_and_nothing_hangs() -> None:
    rig = Bench().arm()
    rig.driver.broken = ("CUDA_ERROR_LAUNCH_FAILED", 719)
    thread = rig.drain._thread
    assert thread is not None
    thread.join(PATIENCE_S)
    rig.backend.disarm()
    assert found(rig) == []
    assert {problem.kind for problem in rig.backend.problems()} == {"drain", "driver"}
    assert not [thread for thread in threading.enumerate() if thread.name == "kscope drain 0"]


def test_the_drain_thread_empties_the_pool_while_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kscope_runtime.drain._MAX_LAUNCH_WAIT_S", 60)
    rig = Bench().arm()
    for block in range(1500):
        rig.backend.pace()  # as launches do: this machine may be too busy to drain in time
        Lane(rig.memory, sm=block % 4, block=block).run()
        time.sleep(0.0001)
    rig.backend.disarm()
    assert found(rig) == list(range(1500))
    assert not [thread for thread in threading.enumerate() if thread.name == "kscope drain 0"]


def test_a_device_that_is_full_of_persistent_blocks_is_armed_without_its_clock(
    bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kscope_runtime.clocks.KERNEL_TIMEOUT_S", 0.01)
    rig = bench()
    rig.driver.full = True
    rig.arm()
    Lane(rig.memory, block=1).run()
    rig.driver.full = False
    (device,) = rig.backend.collect(wait=True)
    assert len(device.syncs) == 1 and device.tick_ns == 32


def test_a_snapshot_has_the_time_when_it_was_read(bench: Make) -> None:
    rig = bench().arm()
    (first,), (second,) = rig.backend.collect(wait=False), rig.backend.collect(wait=False)
    assert first.syncs[-1].globaltimer <= first.read_ns <= second.read_ns
    (ended,) = rig.backend.collect(wait=True)
    assert ended.read_ns == 0


def test_clocks_are_compared_when_a_session_begins_and_ends(bench: Make) -> None:
    rig = bench().arm()
    (device,) = rig.backend.collect(wait=True)
    first, last = device.syncs
    assert first.host_before <= first.host_after <= last.host_before <= last.host_after
    assert first.globaltimer < last.globaltimer


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # Python 3.12
def test_errors_in_a_forked_child_explain_why_it_cannot_record(bench: Make) -> None:
    rig = bench().arm()
    output = refusal(lambda: rig.backend.module_loaded(MODULE), UsageError)
    assert "forked" in output and "'spawn'" in output


def test_the_gate_carries_what_is_sampled(bench: Make) -> None:
    rig = bench()
    rig.backend.module_loaded(MODULE)
    rig.backend.arm(3, Subset.of(block=range(2, 100, 3), warp=(0, 5), sm=2), rig.pool)
    gate = rig.gpu.memory(MODULE).gate
    assert gate["epoch"] == 3 and gate["sampled"] == 1 and gate["warp_mask"] == 0b100001
    assert (gate["block_first"], gate["block_count"], gate["sm_mask"][0]) == (2, 98, 4)


def test_rings_do_not_overlap_inside_the_pool(bench: Make) -> None:
    rig = bench().arm()
    spans = sorted((int(s["base"]), int(s["base"]) + (int(s["mask"]) + 1) * wire.UNIT) for s in rig.memory.stripes)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    for start, end in spans:
        rig.gpu.view(start, end - start)


def test_arming_does_not_wait_without_a_device_in_use(bench: Make) -> None:
    rig = bench()
    rig.driver.current = 0
    rig.backend.arm(1, Subset(), None)
    assert rig.backend.collect(wait=True) == []
    rig.driver.current = 1
    rig.backend.module_loaded(MODULE)
    assert Lane(rig.gpu.memory(MODULE)).run().slab is not None


def test_a_session_begins_once_on_a_device(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    begin = Drain.begin
    monkeypatch.setattr(Drain, "begin", lambda self, epoch, *rest: (begun.append(epoch), begin(self, epoch, *rest))[1])
    rig = bench().arm(1)
    rig.backend.disarm()
    rig.arm(2)
    assert begun == [1, 2]


def test_one_drain_is_created_per_device(bench: Make) -> None:
    rig = bench().arm()
    drain: Drain = rig.drain
    rig.backend.disarm()
    rig.backend.collect(wait=True)
    rig.arm(2)
    assert rig.drain is drain and isinstance(rig.backend, CudaBackend)


def test_the_lower_bound_of_globaltimer_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Bench()
    now = [5_000_000_000]
    monkeypatch.setattr("kscope_runtime.device.time.monotonic_ns", lambda: now[0])
    device = rig.backend._device()
    assert device.surely_past() == 0, "before any comparison nothing is known"
    rig.arm()
    compared = device.syncs[-1].globaltimer
    assert device.surely_past() == compared
    now[0] += 10_000_000_000
    assert compared + 10_000_000_000 - 1_000_000 <= device.surely_past() < compared + 10_000_000_000
    rig.backend.disarm()
    rig.backend.collect(wait=True)
