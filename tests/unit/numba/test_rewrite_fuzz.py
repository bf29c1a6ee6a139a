"""Thousands of random functions behave the same rewritten and in Python."""

from __future__ import annotations

import linecache
import os
from functools import partial
from random import Random
from types import FunctionType
from typing import Any

import pytest

from kscope.instrument import registry
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.marks.grammar import Mark
from kscope_numba import evaluator, rewrite, source

from .programs import program

COUNT = {"thorough": 6000}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), 300)
STEPS = 300
"""Numbers that a run may read before it counts as endless."""


class EndlessError(Exception):
    """The function read too many numbers."""


class Listener(Frontend):
    """Receives the marks of functions that run as Python."""

    name = "listener"

    def __init__(self) -> None:
        self.log: list[Any] = []

    def enable(self, recording: Recording) -> None: ...

    def disable(self) -> None: ...

    def emit(self, mark: Mark, context: Any, value: Any = None) -> bool:
        self.log.append((mark, value))
        return True


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    found = Listener()
    monkeypatch.setattr(registry, "_frontends", {"listener": found})
    return found


def compiled(seed: int) -> FunctionType:
    text, name = program(seed), f"<random function {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space: dict[str, Any] = {}
    exec(compile(text, name, "exec"), space)
    made: FunctionType = space["make"](seed % 7)
    return made


def run(function: FunctionType, log: list[Any], seed: int) -> Any:
    """Its result or exception. The log contains the numbers that it read."""
    random, requested = Random(seed), 0

    def nxt() -> int:
        nonlocal requested
        requested += 1
        if requested > STEPS:
            raise EndlessError
        number = random.randint(0, 9)
        log.append(("asked", number))
        return number

    try:
        result = function(log, nxt)
    except ValueError as error:
        return "raised", error.args
    return "nxt" if callable(result) else result


def both(function: FunctionType, rewritten: FunctionType, listener: Listener, seed: int) -> tuple[Any, Any]:
    outcomes = []
    for one in (function, rewritten):
        listener.log = log = []
        try:
            outcomes.append((run(one, log, seed), log))
        except EndlessError:
            outcomes.append(("endless", log[:STEPS]))
    return outcomes[0], outcomes[1]


@pytest.mark.parametrize("part", range(10))
def test_a_rewritten_function_does_what_python_does(
    part: int, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    hear = listener.emit
    monkeypatch.setattr(
        listener, "emit", lambda mark, context, value=None: evaluator.collect(mark, value) or hear(mark, context, value)
    )
    marked = 0
    for seed in range(part * COUNT // 10, (part + 1) * COUNT // 10):
        function = compiled(seed)
        names: dict[str, Any] = {}

        def place(mark: Mark, value: Any, *where: Any, names: dict[str, Any] = names) -> str:
            name = f"mark_{len(names)}"
            late = isinstance(value, evaluator.RuntimeValue)
            names[name] = lambda *given: listener.log.append((mark, given[0] if late else value))
            return name

        rewritten = source.rebuild(function, partial(rewrite.rewrite, function=function, emit_call=place), names)
        marked += bool(names)
        for draw in range(4):
            native, ours = both(function, rewritten, listener, seed * 4 + draw)
            assert ours == native, f"seed {seed}, draw {draw}\n{program(seed)}"
    assert marked > COUNT / 10 * 0.6


@pytest.mark.parametrize("part", range(2))
def test_functions_behave_the_same_with_marks_removed(
    part: int, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "emit", lambda mark, context, value=None: evaluator.collect(mark, value))
    for seed in range(part * COUNT // 10, (part + 1) * COUNT // 10):
        function = compiled(seed)
        plain = source.rebuild(function, partial(rewrite.rewrite, function=function, emit_call=None), {})
        assert not set(plain.__code__.co_names) & {"kscope", "LOAD", "STORE", "region"}
