"""The table of frontends and backends creates each object once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from threading import Thread
from types import ModuleType

import pytest

from kscope.instrument import registry


@pytest.mark.parametrize("ask", [registry.frontend, registry.backend], ids=["frontend", "backend"])
def test_concurrent_loads_return_one_instance(ask: Callable[[str], object], monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[object] = []

    class Slow:
        """Another thread requests it during its creation, and finishes first."""

        first = True

        def __init__(self) -> None:
            if Slow.first:
                Slow.first = False
                other = Thread(target=lambda: got.append(ask("cuda")))
                other.start()
                other.join()

    monkeypatch.setattr(registry, "_frontends", {})
    monkeypatch.setattr(registry, "_backends", {})
    monkeypatch.setattr(registry, "_made", lambda *about: Slow())
    got.append(ask("cuda"))
    assert got[0] is got[1] is ask("cuda")


def test_the_version_of_a_language_is_its_modules_or_its_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("lang")
    monkeypatch.setitem(sys.modules, "lang", module)
    found = metadata.version("numpy")
    assert registry.version(registry.Entry("lang", "lang:Frontend", "", "numpy")) == ("numpy", found)
    assert registry.version(registry.Entry("lang", "lang:Frontend", "", "no-such-distribution")) == ("", "")
    assert registry.version(registry.Entry("lang", "lang:Frontend", "")) == ("", "")
    module.__dict__["__version__"] = "1.2"
    assert registry.version(registry.Entry("lang", "other:Frontend", "")) == ("lang", "1.2")


def test_every_language_that_is_imported_has_a_version() -> None:
    """Built-in frontends have kscope's version."""
    own = {"kscope_cuda.frontend", "kscope_sim"}
    imported = [one for one in registry.TABLE.values() if one.dsl in sys.modules and one.dsl not in own]
    assert [one.dsl for one in imported if not all(registry.version(one))] == []
