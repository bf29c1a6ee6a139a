"""How a pool is cut into rings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscope.capture import wire
from kscope.errors import UsageError
from kscope_runtime.pool import LEAST_RING, default_bytes, least, rings


@given(st.integers(0, 1 << 36), st.integers(1, 512))
def test_rings_are_powers_of_two_that_fit(extra: int, stripes: int) -> None:
    size = least(stripes) + extra
    cut = rings(size, stripes)
    assert cut.total <= size
    for ring in (cut.each, cut.reserve):
        assert ring >= LEAST_RING and ring & ring - 1 == 0
    assert cut.reserve >= cut.each or cut.reserve * 2 > size - cut.stripes * (cut.each + 4096)


def test_the_default_pool_of_an_h200_is_four_mib_per_sm_and_256_to_share() -> None:
    cut = rings(default_bytes(139 << 30, 132), 132)
    assert (cut.each, cut.reserve) == (4 << 20, 256 << 20)


def test_the_default_pool_of_a_gpu_with_23_mib_free_has_a_ring_for_every_sm() -> None:
    assert rings(default_bytes(23 << 20, 132), 132).each >= LEAST_RING


@given(st.integers(1, 512))
def test_too_small_pools_are_refused_with_the_minimum(stripes: int) -> None:
    with pytest.raises(UsageError, match=str(least(stripes))):
        rings(LEAST_RING, stripes)


@given(st.integers(0, 1 << 35), st.integers(1, 200), st.integers(0, 1 << 39), st.integers(-(1 << 24), 1 << 24))
def test_no_ring_crosses_a_4_gib_boundary(extra: int, stripes: int, units: int, near: int) -> None:
    cut = rings(least(stripes) + extra, stripes)
    for pool in (256 * units, max(0, (units // (1 << 24) << 32) - cut.total // 512 * 256 + 256 * near)):
        table = cut.words(pool)
        sizes = (table["mask"].astype(np.int64) + 1) * wire.UNIT
        first, last = table["base"].astype(np.int64), table["base"].astype(np.int64) + sizes - 1
        assert (first >> 32 == last >> 32).all()
        assert (first >= pool).all() and (last < pool + cut.total).all() and (first % wire.UNIT == 0).all()
        assert (np.sort(first)[1:] > np.sort(last)[:-1]).all(), "rings do not overlap"
        assert (sizes[:-1] == cut.each).all() and sizes[-1] & sizes[-1] - 1 == 0
        assert cut.reserve / 8 <= sizes[-1] <= cut.reserve


def test_a_pool_below_a_4_gib_boundary_is_divided_from_its_start() -> None:
    cut = rings(1 << 30, 132)
    table = cut.words(5 << 32)
    assert table["base"].tolist() == [(5 << 32) + n * (cut.each + 4096) for n in range(133)]
    assert int(table["mask"][-1] + 1) * wire.UNIT == cut.reserve


@pytest.mark.parametrize("size", [128 << 20, 512 << 20, 4 << 30])
def test_large_rings_are_no_power_of_two_apart(size: int) -> None:
    apart = np.diff(rings(size, 132).words(5 << 32)["base"].astype(np.int64)[:-1])
    assert (apart & apart - 1).all()


@pytest.mark.parametrize("before", [3 << 20, 100 << 20, 527 << 20, 530 << 20, 700 << 20])
def test_a_pool_across_a_4_gib_boundary_keeps_its_rings_and_half_its_reserve(before: int) -> None:
    cut = rings(1 << 30, 132)
    table = cut.words((5 << 32) - before)
    assert (table["mask"][:-1] + 1 == cut.each // wire.UNIT).all()
    assert int(table["mask"][-1] + 1) * wire.UNIT >= cut.reserve // 2
