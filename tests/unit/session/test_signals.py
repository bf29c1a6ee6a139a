"""Signals at any instruction of a session: the next session works, and the process is as it was."""

from __future__ import annotations

import inspect
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from noted import NotedBackend, launch

import kscope
from kscope.session import capture_path, session, signal_safe_exit, states
from kscope.util import signals
from kscope.util.signals import Held

WATCHED = frozenset(module.__file__ for module in (session, signal_safe_exit, states, signals))


class Interrupts:
    """Raises SIGINT before the given instructions of these files, counted from 0."""

    def __init__(self, at: Collection[int], watched: Collection[str | None]) -> None:
        self.at, self.watched, self.seen = at, watched, 0

    def __enter__(self) -> Interrupts:
        sys.settrace(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in self.watched:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if not frame.f_code.co_flags & inspect.CO_GENERATOR:  # Python 3.10 would end it without its handlers
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


def run(program: Callable[[], None], *at: int, watched: Collection[str | None] = WATCHED) -> int:
    """The number of instructions of the program, which is interrupted at some of them."""
    with Interrupts(at, watched) as interrupts, suppress(KeyboardInterrupt):
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


QUARTERS = pytest.mark.parametrize("first", range(4))
"""Every fourth instruction, from this one on."""


@QUARTERS
@pytest.mark.parametrize("program", [prepared, looks])
def test_ctrl_c_at_any_instruction_leaves_the_next_session_working(
    log: list[str], program: Callable[[], None], first: int
) -> None:
    program()
    for at in range(first, run(program), 4):
        run(program, at)
        check(log)


@QUARTERS
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one arrives while the first unwinds
def test_a_second_ctrl_c_soon_after_the_first_leaves_the_next_session_working(log: list[str], first: int) -> None:
    empty()
    for at in range(first, run(empty), 4):
        run(empty, at, at + 1 + at % 40)
        check(log)


def test_ctrl_c_at_any_instruction_of_a_pause_ends_it() -> None:
    with kscope.profile() as prof:

        def pauses() -> None:
            with prof.paused():
                pass

        pauses()
        for at in range(run(pauses)):
            run(pauses, at)
            prof.reset()
            launch()
            assert sum(len(device.lines) for device in prof.capture.devices)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of files that are open then
def test_ctrl_c_while_the_path_is_checked_leaves_no_file(tmp_path: Path) -> None:
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_RDWR))
    except OSError:
        pytest.skip("this file system has no files without a name")

    def checked() -> None:
        capture_path.check(tmp_path / "run.kscope")

    watched = (capture_path.__file__, tempfile.__file__)
    checked()
    for at in range(run(checked, watched=watched)):
        run(checked, at, watched=watched)
        assert list(tmp_path.iterdir()) == []


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
