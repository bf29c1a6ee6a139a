"""Kernels that are alive in a process: which are found, and when it is said that some may not be."""

from __future__ import annotations

import gc

import pytest

from kscope.living import OWN, hidden, living


class Kernel:
    """As of another library; the collector knows what can hold others."""

    def __init__(self) -> None:
        self.launches: list[int] = []


def test_every_living_object_of_a_type_is_found() -> None:
    kernels = [Kernel(), Kernel()]
    assert {id(one) for one in living(Kernel)} == {id(one) for one in kernels}


def test_what_was_frozen_is_hidden_and_told_of() -> None:
    kernel = Kernel()
    ballast = [[] for _ in range(OWN)]
    gc.freeze()
    try:
        assert kernel not in living(Kernel)
        (problem,) = hidden("kernels of a test")
        assert problem.kind == "plain" and "kernels of a test that were made before" in problem.text
    finally:
        gc.unfreeze()
    assert living(Kernel) == [kernel] and len(ballast) == OWN
    assert not hidden("kernels of a test")


@pytest.mark.parametrize("own", [0, 375])
def test_what_python_freezes_of_its_own_is_nobodys_kernel(own: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "get_freeze_count", lambda: own)
    assert not hidden("kernels of a test")
