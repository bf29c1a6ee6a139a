"""What every test may count on: how hard hypothesis looks, and which tests need a GPU.

HYPOTHESIS_PROFILE chooses fast (the default), thorough, repeat (the same examples every time), or brief (a few of them:
for what has run elsewhere, and runs again with other versions of a dependency).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

for _name, _examples in (("fast", 40), ("thorough", 400)):
    settings.register_profile(
        _name, max_examples=_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
    )
settings.register_profile("repeat", settings.get_profile("fast"), derandomize=True, database=None)
settings.register_profile("brief", settings.get_profile("repeat"), max_examples=8)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def has_gpu() -> bool:
    """Whether the machine has an NVIDIA device, asked without a driver call: a test that forks stays safe."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test marked gpu is left out where there is none, and says which command runs it."""
    if has_gpu():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU: make gpu"))


@pytest.fixture
def root() -> Path:
    """The checkout."""
    return ROOT
