"""Run a script to the end of its threads, as `python SCRIPT` does between the last line and the exit.

threads      non-daemon threads are joined; to them the main thread appears to have ended
executors    finish their work, then shut down
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from threading import Thread

OWN = "kscope "
"""Name prefix of kscope's own threads, which run until the session ends."""


def to_the_end(execute: Callable[[], object]) -> None:
    """Run a script, then wait for the threads that it started. Ctrl-C ends the wait.

    Args:
        execute: runs the script. If it raises anything but SystemExit, its threads are not awaited, as in Python.
    """
    before, ended = set(threading.enumerate()), threading.Event()
    main = threading.main_thread()
    overrides = vars(main)

    def join(timeout: float | None = None) -> None:
        if threading.current_thread() is main:
            Thread.join(main)  # raises RuntimeError
        ended.wait(timeout)

    # a thread may join the main thread, which must appear to end with the script, not with the session
    overrides.update(is_alive=lambda: not ended.is_set(), join=join)
    try:
        try:
            execute()
        except SystemExit:
            ended.set()
            _wait(before)
            raise
        ended.set()
        _wait(before)
    finally:
        ended.set()
        del overrides["is_alive"], overrides["join"]


def _wait(before: Collection[Thread]) -> None:
    """Join plain threads first: they may still submit work to executors, whose threads may start others."""
    while started := _started(before):
        plain = next((thread for thread in started if _executor(thread) is None), None)
        if plain is None and (executor := _executor(started[0])) is not None:
            executor.shutdown()
        (plain or started[0]).join()


def _started(before: Collection[Thread]) -> list[Thread]:
    excluded = {*before, threading.current_thread()}
    return [
        thread
        for thread in threading.enumerate()
        if thread.is_alive() and not thread.daemon and thread not in excluded and not thread.name.startswith(OWN)
    ]


def _executor(thread: Thread) -> Executor | None:
    """The executor that a thread works for, held by a weak reference.

    It is an argument of a ThreadPoolExecutor's threads and an attribute of a ProcessPoolExecutor's.
    """
    candidates = (*getattr(thread, "_args", ()), getattr(thread, "executor_reference", None))
    targets = (one() for one in candidates if isinstance(one, weakref.ref))
    return next((one for one in targets if isinstance(one, Executor)), None)
