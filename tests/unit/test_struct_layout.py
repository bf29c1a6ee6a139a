"""Structures are read alike with numpy and without."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscope.capture import wire
from kscope.capture.pools.pool_layout import ENTRY_HEAD, HEADER, STATE
from kscope.util.struct_layout import Fields

STRUCTURES = {"header": HEADER, "state": STATE, "entry": ENTRY_HEAD, "head": wire.HEAD, "open": wire.OPEN}


@pytest.mark.parametrize("fields", STRUCTURES.values(), ids=STRUCTURES)
@given(data=st.data())
def test_a_structure_reads_alike_with_numpy_and_without(fields: Fields, data: st.DataObject) -> None:
    before = data.draw(st.integers(0, 9))
    memory = data.draw(st.binary(min_size=before + fields.itemsize, max_size=before + fields.itemsize))
    expected = np.frombuffer(memory, fields, 1, before)[0]
    assert fields.read(memoryview(memory), before) == {name: expected[name] for name in fields.names}


@pytest.mark.parametrize("fields", [*STRUCTURES.values(), wire.LAUNCH, wire.GATE, wire.STRIPE])
def test_numpy_finds_the_fields_at_the_same_places(fields: Fields) -> None:
    found = fields.dtype.fields
    assert found is not None and fields.dtype.itemsize == fields.itemsize
    assert {name: field[1] for name, field in found.items()} == {name: fields.offset(name) for name in fields.names}
