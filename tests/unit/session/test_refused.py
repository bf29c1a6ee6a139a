"""Arguments that a session refuses, before anything runs where possible."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from forked import refusal
from noted import launch

import kscope
from kscope.errors import UsageError
from kscope.session import session, states

# refusals


def test_a_session_in_a_session_is_refused() -> None:
    with (
        kscope.profile() as prof,
        pytest.raises(UsageError, match="one session records at a time"),
        kscope.profile(),
    ):
        pass
    assert prof.capture


def test_a_session_in_another_thread_is_refused() -> None:
    errors: list[UsageError] = []

    def other() -> None:
        try:
            with kscope.profile():
                pass
        except UsageError as error:
            errors.append(error)

    with kscope.profile():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(errors) == 1


@pytest.mark.parametrize("call", [kscope.enable, kscope.disable])
def test_the_state_is_not_changed_under_a_session(call: Callable[[], None]) -> None:
    with kscope.profile(), pytest.raises(UsageError, match=r"kscope\.(en|dis)able\(\) inside"):
        call()


def test_a_session_object_is_used_once() -> None:
    with kscope.profile() as prof:
        pass
    with pytest.raises(UsageError, match="recorded already"), prof:
        pass


def test_results_are_unavailable_before_the_body() -> None:
    with pytest.raises(UsageError, match="before the body"):
        _ = kscope.profile().capture


@pytest.mark.parametrize("what", ["reset", "paused"])
def test_pause_and_reset_outside_the_body_are_refused(what: str) -> None:
    with kscope.profile() as prof:
        pass
    with pytest.raises(UsageError, match="outside the body"):
        (prof.paused().__enter__ if what == "paused" else prof.reset)()


@pytest.mark.parametrize(
    "options",
    [
        {"records": 0},
        {"records": "many"},
        {"strategy": "warp"},
        {"fill": "grow"},
        {"clock": "wall"},
        {"pool": 0},
        {"pool": "1G"},
        {"pool": 1 << 60},
        {"block": 1 << 64},
        {"block": range(0)},
        {"warp": 32},
        {"sm": -1},
        {"kernel": ()},
        {"kernel": 3},
    ],
    ids=str,
)
def test_invalid_profile_options_are_refused_before_the_body(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        kscope.profile(**options)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # Python 3.12
def test_a_forked_child_may_not_use_its_parents_session() -> None:
    with kscope.profile():
        assert "forked" in refusal(lambda: kscope.profile().__enter__(), UsageError)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # Python 3.12
def test_a_child_forked_while_another_thread_holds_the_state_lock_does_not_deadlock() -> None:
    has, done = threading.Event(), threading.Event()

    def other() -> None:
        with states.exclusive():
            has.set()
            done.wait()

    thread = threading.Thread(target=other)
    thread.start()
    has.wait()
    try:
        assert refusal(lambda: free(states.STATE.lock), UsageError) == "it is free"
    finally:
        done.set()
        thread.join()


def free(lock: Any) -> None:
    raise UsageError("it is free" if lock.acquire(blocking=False) else "it is not")


def fails_in_the_body_of(prof: session.Session) -> None:
    with prof.paused(), ExitStack() as parents:
        parents.push(prof)
        raise UsageError("the child's own")


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # Python 3.12
def test_a_forked_child_leaving_its_parents_session_keeps_its_error_and_saves_nothing(tmp_path: Path) -> None:
    with kscope.profile(tmp_path / "run.kscope", export=tmp_path / "run.json") as prof:
        assert refusal(lambda: fails_in_the_body_of(prof), UsageError) == "the child's own"
        assert list(tmp_path.iterdir()) == []
        launch()
    assert len(prof.trace) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "run.kscope"]
