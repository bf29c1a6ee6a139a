"""Every corpus file goes through its reader: former findings of the fuzzer, and one file of each kind. New findings
(`make fuzz`) are added to corpus/<target>/ under a descriptive name."""

from __future__ import annotations

from pathlib import Path

import pytest
from torture.targets import TARGETS, corpus


@pytest.mark.parametrize("path", corpus(), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_file_of_the_corpus_is_read_or_refused_by_name(path: Path, tmp_path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes(), tmp_path)


def test_every_fuzzed_reader_has_a_corpus() -> None:
    assert {path.parent.name for path in corpus()} == TARGETS.keys()
