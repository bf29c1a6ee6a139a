"""The readers that kscope offers."""

from __future__ import annotations

import kscope
from kscope import readers


def test_readers_are_exported_by_kscope() -> None:
    assert kscope.readers is readers
    assert {call.__name__ for call in readers.READERS.values()} | {"READERS"} == set(readers.__all__)
