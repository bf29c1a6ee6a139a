"""Finding the live kernels of a process, and reporting when some may be missed."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kscope.instrument.live_objects import FROZEN_BY_PYTHON, frozen_objects, live_objects


@pytest.fixture(autouse=True)
def _frozen_as_before() -> Iterator[None]:
    """tests/conftest.py may have frozen what was collected."""
    frozen = gc.get_freeze_count() >= FROZEN_BY_PYTHON
    yield
    if frozen:
        gc.freeze()


class Kernel:
    """An object of another library whose references the collector can follow."""

    def __init__(self) -> None:
        self.launches: list[int] = []


def test_every_live_object_of_a_type_is_found() -> None:
    kernels = [Kernel(), Kernel()]
    assert {id(one) for one in live_objects(Kernel)} == {id(one) for one in kernels}


class Derived(Kernel):
    """A third-party wrapper."""


class Twice(Derived, dict[str, int]):
    """And of two."""


def test_live_objects_of_subclasses_are_found_without_touching_proxies() -> None:
    class Proxy:
        """A proxy that claims the type and would load its target."""

        def __init__(self) -> None:
            self.held = [self]

        @property
        def __class__(self) -> type:
            raise AssertionError("called")

    proxy = Proxy()
    kernels = [Kernel(), Derived(), Twice()]
    assert {id(one) for one in live_objects(Kernel)} == {id(one) for one in kernels}
    assert {id(one) for one in live_objects(dict, Derived)} > {id(one) for one in kernels[1:]}
    assert id(proxy) not in {id(one) for one in live_objects(Kernel)}


def test_frozen_kernels_are_reported() -> None:
    kernel = Kernel()
    ballast = [[] for _ in range(FROZEN_BY_PYTHON)]
    gc.freeze()
    try:
        assert kernel not in live_objects(Kernel)
        (problem,) = frozen_objects("kernels of a test")
        assert problem.kind == "plain" and "kernels of a test created before" in problem.text
    finally:
        gc.unfreeze()
    assert live_objects(Kernel) == [kernel] and len(ballast) == FROZEN_BY_PYTHON
    assert not frozen_objects("kernels of a test")


@pytest.mark.parametrize("own", [0, 375])
def test_objects_frozen_by_python_itself_are_not_reported(own: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "get_freeze_count", lambda: own)
    assert not frozen_objects("kernels of a test")
