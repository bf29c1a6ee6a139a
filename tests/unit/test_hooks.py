"""kscope.hooks: third-party functions are wrapped while recording is enabled, also below other tools' wrappers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from kscope.instrument.hooks import Hook


class Base:
    def inherited(self, x: int) -> int:
        return x


class Owner(Base):
    def method(self, x: int) -> int:
        return x

    @staticmethod
    def static(x: int) -> int:
        return x

    @classmethod
    def of_class(cls, x: int) -> int:
        return x

    @property
    def held(self) -> int:
        return 1


def around(original: Callable[..., int], *args: Any) -> int:
    return 10 * original(*args)


MODULE = ModuleType("module")
MODULE.function = lambda x: x  # type: ignore[attr-defined]  # a module of the test's
ONE = Owner()
CALLS: dict[str, tuple[Any, str, Callable[[], int]]] = {
    "a method": (Owner, "method", lambda: Owner().method(1)),
    "an inherited method": (Owner, "inherited", lambda: Owner().inherited(1)),
    "a static method": (Owner, "static", lambda: Owner().static(1)),
    "a class method": (Owner, "of_class", lambda: Owner.of_class(1)),
    "a property": (Owner, "held", lambda: Owner().held),
    "an object's own": (ONE, "method", lambda: ONE.method(1)),
    "a function": (MODULE, "function", lambda: MODULE.function(1)),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_function_is_wrapped_until_the_hook_is_removed(case: str) -> None:
    owner, name, call = CALLS[case]
    before = dict(vars(owner))
    hook = Hook(owner, name, around)
    assert call() == 1
    for _ in range(2):
        hook.install()
        assert call() == 10
    for _ in range(2):
        hook.remove()
        assert dict(vars(owner)) == before
    assert call() == 1


def test_the_wrapper_has_the_signature_of_what_it_wraps() -> None:
    before = inspect.signature(Owner.method)
    hook = Hook(Owner, "method", around)
    hook.install()
    assert inspect.signature(Owner.method) == before
    hook.remove()


class Tool:
    """Another tool, which wraps the function of a module and counts its calls."""

    def __init__(self, module: Any) -> None:
        self.module, self.inner, self.calls = module, module.function, 0
        module.function = self.called

    def called(self, x: int) -> int:
        self.calls += 1
        return int(self.inner(x))

    def leave(self) -> None:
        self.module.function = self.inner


@pytest.fixture
def module() -> Any:
    made = ModuleType("module")
    made.function = lambda x: x  # type: ignore[attr-defined]  # as above
    return made


def test_a_wrapper_of_another_tool_stays_after_removal(module: Any) -> None:
    hook = Hook(module, "function", around)
    hook.install()
    tool = Tool(module)
    assert module.function(1) == 10
    hook.remove()
    assert module.function == tool.called
    assert module.function(1) == 1
    assert tool.calls == 2


@pytest.mark.parametrize("removed", [False, True])
def test_a_hook_wraps_once_below_other_tools(module: Any, removed: bool) -> None:
    hook = Hook(module, "function", around)
    tools = []
    for _ in range(3):
        hook.install()
        tools.append(Tool(module))
        if removed:
            hook.remove()
            assert module.function(1) == 1
    hook.install()
    assert module.function(1) == 10
    hook.remove()
    assert module.function == tools[-1].called
    assert module.function(1) == 1


def test_a_hook_is_reinstalled_after_another_tool_restored_the_original(module: Any) -> None:
    tool = Tool(module)
    hook = Hook(module, "function", around)
    hook.install()
    tool.leave()
    assert module.function(1) == 1
    hook.install()
    assert module.function(1) == 10
