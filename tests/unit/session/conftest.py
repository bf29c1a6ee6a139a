"""Every test of a session: only the simulator is imported, or the noted frontend alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from noted import Noted
from stacked import WAYS, recording

import kscope
from kscope import native
from kscope.instrument import registry
from kscope.instrument.launch_lines import LaunchLines
from kscope.instrument.registry import Entry
from kscope.session import states


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only the simulator counts as imported; nothing stays prepared."""
    monkeypatch.setattr(registry, "_frontends", {})
    monkeypatch.setattr(registry, "TABLE", {"sim": Entry("kscope_sim", "kscope_sim:SimFrontend", "")})
    monkeypatch.setattr("kscope.instrument.registry._announced", lambda path: {})
    yield
    states.STATE.active = states.STATE.join = None
    kscope.disable()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Register the logging frontend, whose DSL counts as imported; its log."""
    log: list[str] = []
    monkeypatch.setattr(Noted, "log", log)
    monkeypatch.setattr(registry, "TABLE", {"noted": Entry("json", "noted:Noted", "")})
    monkeypatch.setattr(registry, "BACKENDS", {"noted": "noted:NotedBackend"})
    monkeypatch.setattr(registry, "_backends", {})
    return log


@pytest.fixture(params=WAYS)
def lines(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LaunchLines:
    """The lines of launches, recorded in each of the ways."""
    if request.param != "Python" and native.module() is None:
        pytest.skip("kscope was installed without a C compiler or Python's headers")
    return recording(request.param, monkeypatch)
