"""Text in columns is the text that Python would write, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kscope import native
from kscope.export.perfetto.tracks import varint
from kscope.util.text_columns import constant, decimals, joined, take, varints

pytestmark = pytest.mark.parametrize("compiled", [True, False])


@pytest.fixture(autouse=True)
def way(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the compiled loops, and with numpy alone."""
    monkeypatch.setattr(native, "available", lambda: compiled and native._loaded() is not None)


NUMBERS = st.lists(st.integers(0, (1 << 63) - 1) | st.integers(0, 300), min_size=1, max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(numbers=NUMBERS, least=st.integers(1, 6))
def test_numbers_are_written_as_decimals(numbers: list[int], least: int) -> None:
    assert decimals(np.array(numbers), least).strings() == [f"{number:0{least}}" for number in numbers]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(numbers=NUMBERS.map(lambda numbers: [max(1, number) for number in numbers]))
def test_numbers_are_written_as_varints(numbers: list[int]) -> None:
    written = varints(np.array(numbers))
    assert written.tobytes() == b"".join(map(varint, numbers))
    assert written.sizes.tolist() == [len(varint(number)) for number in numbers]


def test_parts_are_joined_where_a_condition_holds() -> None:
    lanes = np.array([0, 7, 31])
    cells = joined(constant(b"warp 1", 3), joined(constant(" läne ".encode(), 3), decimals(lanes)).where(lanes > 0))
    assert cells.strings() == ["warp 1", "warp 1 läne 7", "warp 1 läne 31"]
    assert joined(cells, decimals(lanes)).where(lanes < 9).strings() == ["warp 10", "warp 1 läne 77", ""]


def test_one_of_a_few_texts_is_chosen_in_each_row() -> None:
    assert take([b"", "läne".encode(), b"x"], np.array([2, 1, 0, 1])).strings() == ["x", "läne", "", "läne"]
    assert take([], np.zeros(0, np.int64)).strings() == []
    assert take([b"a\0b"], np.array([0])).strings() == ["a b"]
