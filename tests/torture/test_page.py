"""Tests and commands named in docs/design/reliability.md exist."""

from __future__ import annotations

import re
from pathlib import Path

from torture.targets import TARGETS

from kscope.readers import READERS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "design" / "reliability.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))


def test_every_test_on_the_torture_page_exists() -> None:
    assert len(NAMED) > 30
    for path, name in NAMED:
        assert not name or f"def {name}(" in (ROOT / path).read_text(), name
        assert (ROOT / path).is_file(), path


def test_the_torture_page_lists_every_device_test() -> None:
    named = {name for _, name in NAMED}
    for path in ("tests/gpu/test_torture.py", "tests/gpu/test_accuracy.py"):
        written = re.findall(r"^def (test_\w+)\(", (ROOT / path).read_text(), re.M)
        assert set(written) <= named


def test_every_reader_has_a_fuzz_target() -> None:
    assert {"buffers", "proton", "chrome", "log", "histogram"} <= TARGETS.keys()
    assert len(READERS) == 6  # buffers() covers all readers except Proton's, which has its own target
