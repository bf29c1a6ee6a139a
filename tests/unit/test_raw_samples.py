"""The table of tests of which `make test` runs a part names tests that exist, and leaves each a case."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import SAMPLED, runs

TESTS = Path(__file__).resolve().parents[1]


def test_every_sampled_test_exists() -> None:
    for name in SAMPLED:
        file, _, function = name.partition("::")
        assert f"def {function}(" in Path(TESTS, file).read_text() if function else Path(TESTS, file).exists(), name


def test_the_first_case_of_a_test_runs_unless_none_does() -> None:
    assert not [name for name, part in SAMPLED.items() if "::" in name and runs(name, 0) != (part > 0)]


def test_the_part_is_the_share_of_many_cases() -> None:
    for name, part in SAMPLED.items():
        assert sum(runs(name, number) for number in range(100)) == pytest.approx(100 * part, abs=1), name
