"""A capture with samples, and its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kscope.capture.capture import Capture

from . import programs


@pytest.fixture(scope="module")
def capture() -> Capture:
    return programs.recorded()


@pytest.fixture
def path(tmp_path: Path, capture: Capture) -> str:
    capture.save(tmp_path / "run.kscope")
    return str(tmp_path / "run.kscope")
