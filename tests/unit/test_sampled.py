"""The table of tests of which `make test` runs a part names tests that exist."""

from __future__ import annotations

import importlib.util
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("kscope_conftest", TESTS / "conftest.py")


def test_every_sampled_test_exists() -> None:
    assert SPEC is not None and SPEC.loader is not None
    conftest = importlib.util.module_from_spec(SPEC)
    SPEC.loader.exec_module(conftest)
    for name in conftest.SAMPLED:
        file, _, function = name.partition("::")
        assert f"def {function}(" in Path(TESTS, file).read_text() if function else Path(TESTS, file).exists(), name
