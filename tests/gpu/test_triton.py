"""Triton on a GPU: kernels that are tuned, compiled by torch, warp-specialized, or were loaded plain."""

from __future__ import annotations

import time
from types import ModuleType

import pytest

import kscope

from .checks import doubts


@pytest.fixture
def k() -> ModuleType:
    """The kernels' module, imported late because Triton may be missing."""
    from . import triton_kernels

    return triton_kernels


def test_an_autotuned_kernel_records_with_its_best_config(k: ModuleType) -> None:
    import torch

    x = torch.randn(1 << 14, device="cuda")
    out = torch.empty_like(x)

    def grid(meta: dict[str, int]) -> tuple[int]:
        return (x.numel() // meta["BLOCK"],)

    for timed in (True, False):
        with kscope.profile() as prof:
            k.tuned[grid](x, out, x.numel())
        torch.testing.assert_close(out, x * 2)
        best = k.tuned.best_config
        assert len(prof.trace) == x.numel() // best.kwargs["BLOCK"] * best.num_warps
        assert len(prof.trace.launches) == 1
        assert (prof.trace.tuning_launches > 0) == timed
        assert not doubts(prof.trace)


def test_a_kernel_in_a_compiled_function_records(k: ModuleType) -> None:
    import torch

    @torch.compile
    def compiled(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        k.halved[(x.numel() // 256,)](x, out, BLOCK=256)
        return out + 1

    x = torch.randn(1 << 12, device="cuda")
    plain = compiled(x)
    kscope.enable()
    torch.compiler.reset()
    prepared = compiled(x)
    with kscope.profile() as prof:
        recorded = compiled(x)
    kscope.disable()
    torch.compiler.reset()
    for result in (plain, prepared, recorded, compiled(x)):
        torch.testing.assert_close(result, x * 0.5 + 1)
    blocks = x.numel() // 256
    for region in ("load", "store", "half"):
        assert len(prof.trace.filter(region=region)) == blocks * 4
    assert set(prof.trace.filter(region="load").value.tolist()) == {256}


def test_launches_of_a_compiled_function_wait_for_room_and_are_counted(k: ModuleType) -> None:
    """A launch fills a seventh of the pool, and the GPU records faster than the host drains."""
    import torch

    @torch.compile
    def compiled(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        k.halved[(x.numel() // 256,)](x, out, BLOCK=256)
        return out + 1

    launches, x = 400, torch.randn(1 << 17, device="cuda")
    kscope.enable()
    torch.compiler.reset()
    compiled(x)
    with kscope.profile(pool=16 << 20) as prof:
        compiled(x)
        torch.cuda.synchronize()
        time.sleep(0.5)  # the runtime learns how much a launch records, on a busy machine too
        for _ in range(launches - 1):
            compiled(x)
    kscope.disable()
    torch.compiler.reset()
    capture = prof.capture
    assert [count.direct for count in capture.launches.values()] == [launches]
    assert sum(device.lost for device in capture.devices) == 0 and len(prof.trace.launches) == launches
    assert not doubts(prof.trace)


def test_values_of_every_type_come_back(k: ModuleType) -> None:
    import torch

    out = torch.zeros(2, device="cuda", dtype=torch.int32)
    with kscope.profile(strategy=kscope.Lane0Warp0()) as prof:
        k.values[(3,)](out, 7, 2.5)
    assert sorted(prof.trace.filter(region="signed").value.tolist()) == [-1, 0, 1]
    assert prof.trace.filter(region="float").value.tolist() == [1.25] * 3
    assert prof.trace.filter(region="count").value.tolist() == [7] * 3


def test_every_warp_of_every_partition_records(k: ModuleType) -> None:
    import torch

    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("warp specialization needs sm_90")
    out = torch.zeros(2, device="cuda", dtype=torch.int32)
    blocks, n = 4, 5
    with kscope.profile() as prof:
        k.specialized[(blocks,)](out, n, num_warps=4)
    assert len(prof.trace.filter(region="consume")) == blocks * 4 * n
    assert len(prof.trace.filter(region="item")) == blocks * 2 * n
    assert len(prof.trace.filter(region="produce")) == blocks * 2
    assert set(prof.trace.filter(region="consume").warp.tolist()) == {0, 1, 2, 3}
    assert len(set(prof.trace.filter(region="item").warp.tolist())) == 2
    assert not doubts(prof.trace)


def test_a_kernel_object_that_was_loaded_plain_is_named(k: ModuleType) -> None:
    import torch

    out = torch.zeros(2, device="cuda", dtype=torch.int32)
    plain = k.values[(1,)](out, 7, 2.5)
    with kscope.profile() as prof:
        plain[(1, 1, 1)](out, 7, 2.5)
    assert len(prof.trace) == 0
    assert "kernel values was compiled plain and launched as a compiled object" in " ".join(
        p.text for p in prof.trace.problems
    )
