"""Kernels recorded behind the assembler: results and records on a device of sm_90."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import kscope

from .checks import doubts

NAMES = ("matmul", "attention", "backward", "softmax")


@pytest.fixture
def s() -> Any:
    """The kernels' module, imported late because Triton may be missing."""
    import torch

    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the encodings are those of sm_90")
    from . import sass_kernels

    return sass_kernels


def same(one: list[Any], other: list[Any]) -> bool:
    """Whether all bits of the results agree."""
    import torch

    words = torch.int16 if one[0].dtype == torch.float16 else torch.int32
    return all(torch.equal(a.view(words), b.view(words)) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_the_plain_code_repeats_itself(s: Any, name: str) -> None:
    found = s.made(name)
    plain = s.launcher(found, found.plain)
    assert all(same(plain(), plain()) for _ in range(10))


@pytest.mark.parametrize("name", NAMES)
def test_code_that_is_not_armed_computes_the_same(s: Any, name: str) -> None:
    found = s.made(name)
    expected = s.launcher(found, found.plain)()
    assert same(s.launcher(found, found.recorded.data)(), expected)


@pytest.mark.parametrize("name", NAMES)
def test_results_are_bitwise_equal_with_the_gate_shut_and_while_it_records(s: Any, name: str) -> None:
    found = s.made(name)
    expected = s.launcher(found, found.plain)()
    launch = s.launcher(found, found.recorded.armed(s.control_block((found.meta,))))
    assert same(launch(), expected)
    with kscope.profile(records=256):
        assert all(same(launch(), expected) for _ in range(3))
    assert same(launch(), expected)


@pytest.mark.parametrize("name", NAMES)
def test_every_warp_records_every_region_as_often_as_it_runs(s: Any, name: str) -> None:
    found = s.made(name)
    launch = s.launcher(found, found.recorded.armed(s.control_block((found.meta,))))
    with kscope.profile(records=256) as prof:
        launch()
        launch()
    trace = prof.trace
    assert len(trace.launches) == 2
    assert not doubts(trace)
    names = Counter(trace.region_names()[trace.region].tolist())
    assert names == {region: 2 * count * found.case.warps for region, count in found.case.records.items()}
    assert (trace.dur_ns >= 0).all()


def test_sampled_blocks_alone_record(s: Any) -> None:
    found = s.made("matmul")
    launch = s.launcher(found, found.recorded.armed(s.control_block((found.meta,))))
    with kscope.profile(records=256, block=range(0, 64, 4)) as prof:
        launch()
    assert len(prof.trace) == sum(found.case.records.values()) * found.case.warps // 4


def test_a_ring_keeps_the_newest_records(s: Any) -> None:
    from kscope.instrument.recording import Recording

    found = s.made("matmul", Recording(records=8))
    launch = s.launcher(found, found.recorded.armed(s.control_block((found.meta,))))
    with kscope.profile(records=8) as prof:
        launch()
    assert len(prof.trace) == 8 * found.case.warps
    assert "epilogue" in prof.trace.region_names()[prof.trace.region]
