"""Text in columns is the text that Python would write, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscope.export.pfrows import spliced
from kscope.export.pftracks import varint
from kscope.util.cells import constant, decimals, joined, varints

NUMBERS = st.lists(st.integers(0, (1 << 63) - 1) | st.integers(0, 300), min_size=1, max_size=20)


@given(numbers=NUMBERS, least=st.integers(1, 6))
def test_numbers_are_written_as_decimals(numbers: list[int], least: int) -> None:
    assert decimals(np.array(numbers), least).strings() == [f"{number:0{least}}" for number in numbers]


@given(numbers=NUMBERS)
def test_numbers_are_written_as_varints(numbers: list[int]) -> None:
    written = varints(np.array(numbers))
    assert written.tobytes() == b"".join(map(varint, numbers))
    assert written.sizes.tolist() == [len(varint(number)) for number in numbers]


def test_parts_are_joined_where_a_condition_holds() -> None:
    lanes = np.array([0, 7, 31])
    cells = joined(constant(b"warp 1", 3), joined(constant(" läne ".encode(), 3), decimals(lanes)).where(lanes > 0))
    assert cells.strings() == ["warp 1", "warp 1 läne 7", "warp 1 läne 31"]
    assert cells.take(slice(1, 2)).strings() == ["warp 1 läne 7"]


@pytest.mark.parametrize("native", ["0", "1"])
@given(count=st.integers(1, 30), data=st.data())
def test_rows_of_another_width_keep_their_columns(native: str, count: int, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KSCOPE_NATIVE", native)
        at = sorted(data.draw(st.sets(st.integers(0, count - 1))))
        rows, other = np.arange(count * 3, dtype=np.uint8).reshape(-1, 3), np.full((len(at), 5), 255, np.uint8)
        expected = b"".join(b"\xff" * 5 if row in at else rows[row].tobytes() for row in range(count))
        assert bytes(spliced(rows, np.array(at, np.int64), other)) == expected
