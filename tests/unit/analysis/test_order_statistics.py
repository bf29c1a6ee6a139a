"""Order statistics from a sample and counts, against putting everything in order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscope.analysis import order_statistics, quantiles


def statistics(values: np.ndarray, cuts: list[int], batch: int, sample: int) -> tuple[float, float, np.ndarray]:
    """Statistics of all values, which are stored in pieces between the cuts, each after an unrelated value."""
    edges = [0, *sorted(cut % (len(values) + 1) for cut in cuts), len(values)]
    pieces = [values[a:b] for a, b in pairwise(edges) if b > a]
    apart = np.concatenate([np.concatenate([[-1e9], piece]) for piece in pieces])
    length = np.array([len(piece) for piece in pieces])
    begin = np.cumsum(length + 1) - length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_statistics, "_BATCH", batch)
        patch.setattr(order_statistics, "_SAMPLE", sample)
        ranked = order_statistics.Ranked(apart, begin, length, np.arange(len(values)))
        for job in ranked.jobs():
            job()
        return ranked.result()


numbers = st.one_of(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.lists(st.integers(0, 3), min_size=1, max_size=60)
)


@given(numbers, st.lists(st.integers(0, 60), max_size=5), st.integers(1, 70), st.integers(1, 70))
def test_rank_statistics_equal_those_of_sorted_values(
    numbers: list[float], cuts: list[int], batch: int, sample: int
) -> None:
    values = np.array(numbers, np.float64)
    least, greatest, found = statistics(values, cuts, batch, sample)
    ordered = np.append(np.sort(values), values.max())
    assert (least, greatest) == (values.min(), values.max())
    assert found.tolist() == np.stack([ordered[:-1], ordered[1:]], axis=1).tolist()


@pytest.mark.parametrize("period", [2, 3, 61])
def test_a_misleading_sample_does_not_change_the_statistics(period: int) -> None:
    values = np.where(np.arange(1024) % period, 1.0, np.arange(1024) + 2.0)
    values = np.concatenate([values, np.linspace(5, 6, 25)])
    _, _, found = statistics(values, [], 128, 4)
    assert found[:, 0].tolist() == np.sort(values).tolist()


def test_percentiles_of_a_large_group_are_numpys() -> None:
    rng = np.random.default_rng(1)
    for values in (rng.lognormal(5, 1, 1 << 18), rng.integers(20, 400, 1 << 18) * 0.505, np.full(1 << 18, 3.0)):
        count = np.array([1000, len(values) - 1000])
        found = quantiles.quantiles(values, np.zeros(2, np.int64), 1, np.array([0, 1000]), count)[0]
        expected = [values.min(), *np.percentile(values, quantiles.PERCENTS), values.max()]
        np.testing.assert_allclose(found, expected, rtol=1e-15)
