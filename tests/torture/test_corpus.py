"""Every corpus file goes through its reader: former findings of the fuzzer, and one file of each kind. New findings
(`make fuzz`) are added to corpus/<target>/ under a descriptive name."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from torture.targets import TARGETS, command, corpus, inside, run_options


@pytest.mark.parametrize("path", corpus(), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_file_of_the_corpus_is_read_or_refused_by_name(path: Path, tmp_path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes(), tmp_path)


@pytest.mark.parametrize("path", [path for path in corpus() if re.fullmatch(r"a\d\d|r\d", path.name)], ids=str)
def test_seeds_of_command_lines_are_accepted(path: Path, tmp_path: Path) -> None:
    """A renamed command or option would make them, and what the fuzzer makes of them, a test of the parser alone."""
    data = path.read_bytes()
    if path.parent.name == "recording":
        assert run_options(data)
        return
    with inside(tmp_path):
        assert command([os.fsdecode(word) for word in data.split(b"\0")]) != 2


def test_every_fuzzed_reader_has_a_corpus() -> None:
    assert {path.parent.name for path in corpus()} == TARGETS.keys()
