"""How a pool is cut into rings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscope.errors import UsageError
from kscope_runtime.pool import LEAST_RING, default_bytes, least, rings


@given(st.integers(0, 1 << 36), st.integers(1, 512))
def test_rings_are_powers_of_two_that_fit(extra: int, stripes: int) -> None:
    size = least(stripes) + extra
    cut = rings(size, stripes)
    assert cut.total <= size
    for ring in (cut.each, cut.reserve):
        assert ring >= LEAST_RING and ring & ring - 1 == 0
    assert cut.reserve >= cut.each or cut.reserve * 2 > size - cut.stripes * cut.each


def test_the_default_pool_of_an_h200_is_four_mib_per_sm_and_256_to_share() -> None:
    cut = rings(default_bytes(139 << 30), 132)
    assert (cut.each, cut.reserve) == (4 << 20, 256 << 20)


@given(st.integers(1, 512))
def test_a_pool_that_is_too_small_says_what_is_enough(stripes: int) -> None:
    with pytest.raises(UsageError, match=str(least(stripes))):
        rings(LEAST_RING, stripes)
