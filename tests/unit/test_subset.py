"""Subset: user input and the gate's words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscope.capture.wire import MAX_SMS, block_magic
from kscope.errors import UsageError
from kscope.instrument.subset import Subset

U64 = (1 << 64) - 1


@given(st.integers(0, 2**32 - 1), st.integers(1, 2**32 - 1))
def test_the_divisibility_test_equals_the_remainder(x: int, stride: int) -> None:
    magic = block_magic(stride)
    assert (x * magic & U64 <= (magic - 1) & U64) == (x % stride == 0)


@given(st.integers(0, 2**20), st.integers(1, 2**12))
def test_multiples_of_a_stride_pass_the_divisibility_test(factor: int, stride: int) -> None:
    x, magic = factor * stride & 0xFFFFFFFF, block_magic(stride)
    assert (x * magic & U64 <= (magic - 1) & U64) == (x % stride == 0)


def test_a_stride_of_one_selects_every_block() -> None:
    assert block_magic(1) == 0  # x * 0 = 0 is never above 2^64 - 1


@pytest.mark.parametrize(
    ("typed", "blocks"),
    [
        (None, None),
        (100, range(100, 101)),
        ("0:100", range(100)),
        ("#0:1000:10", range(0, 1000, 10)),
        ([3, 1, 2], range(1, 4)),
        (["#0", 8, "16"], range(0, 17, 8)),
        (range(0, 1000, 8), range(0, 1000, 8)),
        (slice(10, 20), range(10, 20)),
        (slice(10, None), range(10, 1 << 63)),
        (slice(None, 5), range(5)),
        (slice(None, None, 3), range(0, 1 << 63, 3)),
    ],
)
def test_blocks_are_a_number_a_range_text_or_a_regular_list(typed: Any, blocks: range | None) -> None:
    assert Subset.of(block=typed).block == blocks


@pytest.mark.parametrize(
    "typed",
    [-1, range(5, 5), range(-3, 5), range(9, 0, -1), slice(4, 2), slice(0.5, None), True, 1.5, 1 << 64],
)
def test_empty_and_invalid_block_ranges_are_refused(typed: Any) -> None:
    with pytest.raises(UsageError, match="block"):
        Subset.of(block=typed)


@pytest.mark.parametrize(
    "typed",
    ["x", [1, 2, 5], "0,8", (0, 8), range(0, 1 << 40, 1 << 33), [], "", "1:2:3:4", "#1,2", "1,2,3,4", "::0"],
)
def test_coordinates_and_irregular_blocks_are_refused_when_recording(typed: Any) -> None:
    with pytest.raises(UsageError, match="block"):
        Subset.of(block=typed)


@pytest.mark.parametrize("typed", [-1, 32, True, [], [0, 32], "0", [1.0], 3.5, np.bool_(True), object()])
def test_warps_that_no_block_has_are_refused(typed: Any) -> None:
    with pytest.raises(UsageError, match="from 0 to 31"):
        Subset.of(warp=typed)


def test_warps_and_sms_are_one_number_or_several() -> None:
    assert Subset.of(warp=3, sm=[7, 1, 7]) == Subset(None, (3,), (1, 7))


def test_columns_of_a_trace_are_valid_filters() -> None:
    sms, warps, blocks = np.array([3, 1], np.uint16), np.array([0, 2], np.uint8), np.array([8], np.int64)
    chosen = Subset.of(block=blocks[0], warp=warps, sm=sms[0])
    assert chosen == Subset(range(8, 9), (0, 2), (3,))
    assert {type(one) for one in (chosen.block.stop, *chosen.warp, *chosen.sm)} == {int}  # type: ignore[union-attr,misc]  # none is None
    assert Subset.of(block=slice(blocks[0], None, 4)).block == range(8, 1 << 63, 4)


def test_an_unsampled_gate_has_no_filters() -> None:
    gate = Subset().gate(epoch=5, stripes=132)
    assert (int(gate["epoch"]), int(gate["stripes"]), int(gate["sampled"])) == (5, 132, 0)
    assert int(gate["warp_mask"]) == 0xFFFFFFFF


def test_the_gate_encodes_sampled_blocks_warps_and_sms() -> None:
    gate = Subset.of(block=range(8, 1000, 4), warp=(0, 31), sm=(0, 33, MAX_SMS - 1)).gate(1, 4)
    assert int(gate["sampled"]) == 1
    assert (int(gate["block_first"]), int(gate["block_count"])) == (8, 992)
    assert int(gate["block_magic"]) == block_magic(4)
    assert int(gate["warp_mask"]) == 1 << 31 | 1
    assert [i for i, word in enumerate(gate["sm_mask"]) if word] == [0, 1, MAX_SMS // 32 - 1]
    assert int(gate["sm_mask"][1]) == 2
