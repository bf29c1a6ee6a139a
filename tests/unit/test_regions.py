"""Public functions used in kernels: they reach the tracing frontend, and do nothing without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import kscope
from kscope.errors import UsageError
from kscope.instrument import registry
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.marks.grammar import Mark


class Listener(Frontend):
    """A frontend that is always tracing, and remembers."""

    name = "listener"

    def __init__(self) -> None:
        self.heard: list[tuple[Mark, Any, Any]] = []

    def enable(self, recording: Recording) -> None: ...

    def disable(self) -> None: ...

    def emit(self, mark: Mark, context: Any, value: Any = None) -> bool:
        self.heard.append((mark, context, value))
        return True

    @property
    def acts(self) -> list[tuple[str, str, str]]:
        return [(mark.act, mark.name, mark.how) for mark, _, _ in self.heard]


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    found = Listener()
    monkeypatch.setattr(registry, "_frontends", {"listener": found})
    monkeypatch.setattr("kscope.instrument.registry.COMPILER", "listener")
    return found


def test_a_region_is_an_enter_and_an_exit(listener: Listener) -> None:
    with kscope.region("load"):
        assert listener.acts == [("enter", "load", "with")]
    assert listener.acts == [("enter", "load", "with"), ("exit", "load", "with")]


def test_a_value_goes_with_the_enter(listener: Listener) -> None:
    with kscope.region("load", value=7):
        pass
    assert [value for _, _, value in listener.heard] == [7, None]


def test_zero_is_recorded_as_a_value(listener: Listener) -> None:
    kscope.scope("load", value=5).enter(0)
    kscope.instant("here", 0)
    assert [value for _, _, value in listener.heard] == [0, 0]


def test_both_marks_of_a_region_contain_the_strategy(listener: Listener) -> None:
    with kscope.region("load", strategy=kscope.TargetWarp(0, 4)):
        pass
    assert [mark.strategy for mark, _, _ in listener.heard] == ["warps:0,4"] * 2


def test_a_strategy_may_be_its_text(listener: Listener) -> None:
    with kscope.region("load", strategy="warps:0,4"):
        pass
    kscope.instant("here", strategy="all")
    kscope.counter("depth", 1, strategy="elected-any")
    assert [mark.strategy for mark, _, _ in listener.heard] == ["warps:0,4"] * 2 + ["all", "elected-any"]


def test_a_scope_is_declared_once_and_entered_anywhere(listener: Listener) -> None:
    load = kscope.scope("load")
    with load, load:
        pass
    with load(value=3):
        pass
    load.enter(1)
    load.exit()
    assert [act for act, _, _ in listener.acts] == ["enter", "enter", "exit", "exit", "enter", "exit", "enter", "exit"]
    assert [how for _, _, how in listener.acts] == ["with"] * 6 + ["call"] * 2
    assert [value for _, _, value in listener.heard] == [None, None, None, None, 3, None, 1, None]


def test_calling_a_scope_with_a_value_does_not_change_the_scope(listener: Listener) -> None:
    load = kscope.scope("load", value=1)
    with load(value=2):
        pass
    with load:
        pass
    assert [value for mark, _, value in listener.heard if mark.act == "enter"] == [2, 1]


def test_no_exit_is_recorded_where_an_exception_passes(listener: Listener) -> None:
    with pytest.raises(ZeroDivisionError), kscope.region("load"):
        raise ZeroDivisionError
    assert [act for act, _, _ in listener.acts] == ["enter"]


def test_instants_and_counters_emit_single_marks(listener: Listener) -> None:
    kscope.instant("here")
    kscope.instant("here", 5)
    kscope.counter("depth", 2.5)
    assert listener.acts == [("instant", "here", "call")] * 2 + [("counter", "depth", "call")]
    assert [value for _, _, value in listener.heard] == [None, 5, 2.5]


def test_a_pin_carries_its_value(listener: Listener) -> None:
    with kscope.region("math") as math:
        math.pin("x")
    assert listener.acts[1] == ("pin", "math", "call")
    assert listener.heard[1][2] == "x"


def test_compiler_keywords_are_passed_to_the_frontend(listener: Listener) -> None:
    with kscope.region("load", _semantic="builder"):
        pass
    kscope.instant("here", _semantic="builder")
    assert [context for _, context, _ in listener.heard] == ["builder"] * 3


def test_the_first_frontend_that_traces_gets_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf(Listener):
        def emit(self, mark: Mark, context: Any, value: Any = None) -> bool:
            return False

    deaf, first, second = Deaf(), Listener(), Listener()
    monkeypatch.setattr(registry, "_frontends", {"deaf": deaf, "first": first, "second": second})
    kscope.instant("here")
    assert (len(first.heard), len(second.heard)) == (1, 0)


def test_marks_outside_kernels_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_frontends", {})
    with kscope.region("load", value=1):
        kscope.instant("here")
        kscope.counter("depth", 1)


@pytest.mark.parametrize("word", [kscope.region, kscope.scope, kscope.instant])
@pytest.mark.parametrize("name", ["", 3, None])
def test_a_name_is_checked_where_it_is_written(word: Any, name: object) -> None:
    with pytest.raises(UsageError, match="name"):
        word(name)


@pytest.mark.parametrize("strategy", ["warp", 0, kscope.Elected])
def test_a_strategy_is_checked_where_it_is_written(strategy: object) -> None:
    with pytest.raises(UsageError, match="expected 'lane0-warp0'"):
        kscope.region("load", strategy=strategy)  # type: ignore[arg-type]  # the error is the test


def test_public_functions_are_triton_builtins() -> None:
    for word in (kscope.region, kscope.scope, kscope.instant, kscope.counter, kscope.scope.enter, kscope.scope.exit):
        assert getattr(word, "__triton_builtin__", False)
