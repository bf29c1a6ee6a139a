"""The docs about other profilers' data."""

from __future__ import annotations

import re
from pathlib import Path

import kscope
from kscope import readers

ROOT = Path(__file__).resolve().parents[3]


def test_the_outputs_page_explains_every_problem_of_readers() -> None:
    sources = [path.read_text() for path in (ROOT / "kscope" / "readers").glob("*.py")]
    kinds = {kind for text in sources for kind in re.findall(r'notes\.(?:count|add)\(\s*"(\w+)"', text)} | {"cut"}
    assert len(kinds) >= 9
    page = (ROOT / "docs" / "outputs.md").read_text()
    assert not {kind for kind in kinds if f"`{kind}`" not in page}


def test_readers_are_exported_by_kscope() -> None:
    assert kscope.readers is readers
    assert {call.__name__ for call in readers.READERS.values()} | {"READERS"} == set(readers.__all__)
