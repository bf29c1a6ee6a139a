"""The table of frontends and backends creates each object once."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

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
    monkeypatch.setattr(registry, "_resolve", lambda target: Slow)
    got.append(ask("cuda"))
    assert got[0] is got[1] is ask("cuda")
