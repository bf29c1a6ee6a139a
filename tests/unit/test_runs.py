"""Groups of equal numbers, close together and far apart, with and without the compiled loops."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscope.util.reduction import Rows, reduced
from kscope.util.runs import count_distinct, distinct_by, group_equal, order_by, sum_by

FAR = 1 << 40
numbers = st.lists(st.integers(0, 9) | st.integers(FAR, FAR + 9), max_size=30) | st.lists(
    st.integers(-9, 9), max_size=30
)


@given(values=numbers)
@pytest.mark.parametrize("compiled", ["0", "1"])
def test_groups_have_a_first_member_and_a_size(compiled: str, values: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KSCOPE_NATIVE", compiled)
        first, size, group = group_equal(np.array(values, np.int64))
    distinct = sorted(set(values))
    assert first.tolist() == [values.index(one) for one in distinct]
    assert size.tolist() == [values.count(one) for one in distinct]
    assert [distinct[one] for one in group.tolist()] == values


@given(values=numbers)
def test_distinct_numbers_are_counted(values: list[int]) -> None:
    assert count_distinct(np.array(values, np.int64)) == len(set(values))


@given(rows=st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9) | st.integers(FAR, FAR + 9)), max_size=30))
def test_distinct_numbers_are_counted_by_group(rows: list[tuple[int, int]]) -> None:
    group, values = (np.array([row[at] for row in rows], np.int64) for at in range(2))
    assert distinct_by(group, values, 5).tolist() == [len({two for one, two in rows if one == at}) for at in range(5)]


@given(keys=st.lists(st.integers(0, 9) | st.integers(FAR, FAR + 9), min_size=1, max_size=30))
def test_weights_are_summed_by_key(keys: list[int]) -> None:
    expected = Counter[int]()
    for weight, key in enumerate(keys):
        expected[key] += weight
    found, sums = sum_by(np.array(keys, np.int64), np.arange(len(keys), dtype=np.float64))
    assert dict(zip(found.tolist(), sums.tolist(), strict=True)) == expected
    assert found.tolist() == sorted(expected)


@given(
    rows=st.lists(
        st.tuples(st.sampled_from([3, 5, FAR]), st.integers(-9, 9), st.floats(width=32), st.booleans()), max_size=30
    )
)
@pytest.mark.parametrize("compiled", ["0", "1"])
def test_rows_of_one_code_are_reduced(compiled: str, rows: list[tuple[int, int, float, bool]]) -> None:
    code, number, value, flag = (np.array([row[at] for row in rows]) for at in range(4))
    code, number, value, flag = code.astype(np.int64), number.astype(np.int64), value.astype(float), flag.astype(bool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KSCOPE_NATIVE", compiled)
        found = reduced(
            len(rows), lambda part: Rows(code[part], (number[part], flag[part]), [value[part]], [-value[part]])
        )
    members = [code == one for one in found.code.tolist()]
    with np.errstate(invalid="ignore"):
        expected = [[float(value[where].min()), float((-value[where]).max())] for where in members]
    assert found.code[found.of].tolist() == code.tolist()
    assert [column.tolist() for column in found.sums] == [
        [float(column[where].sum()) for where in members] for column in (number, flag)
    ]
    assert np.array_equal(np.array(expected).reshape(-1, 2).T, [found.least[0], found.most[0]], equal_nan=True)


def test_one_byte_numbers_have_a_range_of_more_than_half_of_them() -> None:
    assert count_distinct(np.array([-128, 127, 127], np.int8)) == 2
    assert group_equal(np.array([-128, 127, 127] * 100, np.int8))[1].tolist() == [100, 200]


@given(
    rows=st.lists(st.tuples(st.integers(-9, 9) | st.integers(FAR, FAR + 9), st.integers(0, 2)), max_size=30),
    far=st.booleans(),
)
def test_rows_are_ordered_by_one_column_after_the_other(rows: list[tuple[int, int]], far: bool) -> None:
    first, second = (np.array([row[at] for row in rows], np.int64) for at in range(2))
    if far:  # more than 64 bits in all
        first = first * (1 << 22)
    assert order_by(first, second).tolist() == sorted(range(len(rows)), key=lambda at: (first[at], second[at]))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int64, np.uint64])
def test_columns_of_every_width_are_ordered(kind: type[np.integer]) -> None:
    ends = np.iinfo(kind)
    column = np.array([ends.max, ends.min, 0, 1, ends.min, ends.max], kind)
    assert order_by(column).tolist() == np.argsort(column, kind="stable").tolist()
    assert order_by(column.astype(kind), np.arange(6)).tolist() == np.argsort(column, kind="stable").tolist()
