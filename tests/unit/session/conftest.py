"""Every test of a session: only the simulator is imported, or the noted frontend alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from noted import Noted

import kscope
from kscope import frontends, states
from kscope.frontends import Entry


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only the simulator is imported, whatever other tests have imported; nothing stays prepared."""
    monkeypatch.setattr(frontends, "_frontends", {})
    monkeypatch.setattr(frontends, "TABLE", {"sim": Entry("kscope_sim", "kscope_sim:SimFrontend", "")})
    monkeypatch.setattr("kscope.frontends._announced", lambda path: {})
    yield
    states.STATE.active = states.STATE.arm = None
    kscope.disable()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The noted frontend stands in the table, and its DSL is imported; what it was told."""
    log: list[str] = []
    monkeypatch.setattr(Noted, "log", log)
    monkeypatch.setattr(frontends, "TABLE", {"noted": Entry("json", "noted:Noted", "")})
    monkeypatch.setattr(frontends, "BACKENDS", {"noted": "noted:NotedBackend"})
    monkeypatch.setattr(frontends, "_backends", {})
    return log
