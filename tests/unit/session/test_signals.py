"""Signals at any instruction of a session: the next session works, and the process is as it was."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any

import pytest
from noted import NotedBackend

import kscope
from kscope.session import session, statement, states
from kscope.util import signals
from kscope.util.signals import Held

WATCHED = frozenset(module.__file__ for module in (session, statement, states, signals))


class Interrupts:
    """Raises SIGINT before the given instructions of kscope's session code, counted from 0."""

    def __init__(self, at: Collection[int]) -> None:
        self.at, self.seen = at, 0

    def __enter__(self) -> Interrupts:
        sys.settrace(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in WATCHED:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._count()
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        if event == "opcode":
            self._count()
        return self._step

    def _count(self) -> None:
        self.seen += 1
        if self.seen - 1 in self.at:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def _ctrl_c() -> Any:
    """Ctrl-C raises KeyboardInterrupt, also where the test runner was started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    trace = sys.gettrace()
    yield
    sys.settrace(trace)
    signal.signal(signal.SIGINT, before)


def empty() -> None:
    with kscope.profile():
        pass


def prepared() -> None:
    kscope.enable(records=64)
    kscope.disable()


def looks() -> None:
    with kscope.profile() as prof:
        with prof.paused():
            pass
        prof.reset()


def run(program: Callable[[], None], *at: int) -> int:
    """The number of instructions of the program, which is interrupted at some of them."""
    with Interrupts(at) as interrupts, suppress(KeyboardInterrupt):
        program()
    return interrupts.seen


def check(log: list[str]) -> None:
    """A session works, and nothing of an earlier one is in force."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with kscope.profile():
        log.append("body")
    kscope.disable()
    assert log[-6:] == ["body", "wait", "disarm", "collect True", "disarm", "disable"]
    assert (states.STATE.active, states.STATE.hooked, states.STATE.names) == (None, None, [])
    log.clear()


@pytest.mark.parametrize("program", [prepared, looks])
def test_ctrl_c_at_any_instruction_leaves_the_next_session_working(log: list[str], program: Callable[[], None]) -> None:
    program()
    for at in range(run(program)):
        run(program, at)
        check(log)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one arrives while the first unwinds
def test_a_second_ctrl_c_soon_after_the_first_leaves_the_next_session_working(log: list[str]) -> None:
    empty()
    for at in range(run(empty)):
        run(empty, at, at + 1 + at % 40)
        check(log)


def test_the_body_runs_with_the_programs_signal_handler() -> None:
    with kscope.profile():
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("looked_at", [False, True])
def test_an_exit_stack_leaves_a_session(log: list[str], looked_at: bool) -> None:
    with ExitStack() as stack:
        prof = stack.enter_context(kscope.profile())
        assert not looked_at or callable(prof.__exit__)
        with pytest.raises(kscope.UsageError, match="inside a profile"):
            kscope.disable()
    check(log)


def test_accessing_the_exit_method_does_not_end_a_session(log: list[str]) -> None:
    with kscope.profile() as prof:
        assert callable(prof.__exit__)
        with pytest.raises(kscope.UsageError, match="inside a profile"):
            kscope.disable()


def test_a_handler_runs_once_when_the_state_has_changed(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def disarm(self: NotedBackend) -> None:
        signal.raise_signal(signal.SIGUSR1)
        log.append("disarm")

    monkeypatch.setattr(NotedBackend, "disarm", disarm)
    before = signal.signal(signal.SIGUSR1, lambda number, frame: log.append(f"signal {number == signal.SIGUSR1}"))
    try:
        with kscope.profile():
            log.clear()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert log == ["wait", "disarm", "collect True", "disarm", "disable", "signal True", "signal True"]


def test_a_wait_continues_after_a_signal_handler_that_does_not_raise() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        with Held() as held:
            signal.raise_signal(signal.SIGINT)
            assert not came
            assert held.let(lambda: [signal.raise_signal(signal.SIGINT), len(came)][1]) == 2
            signal.raise_signal(signal.SIGINT)
            assert len(came) == 2
        assert len(came) == 3
    finally:
        signal.signal(signal.SIGINT, before)
