"""A script has not ended before its threads have: what `python SCRIPT` does between the last line and the exit.

    threads      that are no daemons are waited for; to them the main thread has ended
    executors    finish what they were given, and their idle threads are sent away

What lives here: this wait. What does not: what is run (run.py), daemons, processes.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from threading import Thread

OWN = "kscope "
"""How the names of the session's own threads begin: they serve until it ends."""


def to_the_end(execute: Callable[[], object]) -> None:
    """Runs a script, and returns when the threads that it started have ended. Ctrl-C ends the wait. One that fails is
    not waited for, nor is it by Python before it says so."""
    before, ended = set(threading.enumerate()), threading.Event()
    main = threading.main_thread()
    says = vars(main)

    def join(timeout: float | None = None) -> None:
        if threading.current_thread() is main:
            Thread.join(main)  # refuses it
        ended.wait(timeout)

    # a thread may wait for the main one, which ends with the script and not with the session around it
    says.update(is_alive=lambda: not ended.is_set(), join=join)
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
        del says["is_alive"], says["join"]


def _wait(before: Collection[Thread]) -> None:
    """Threads first: they may yet give work to an executor, whose threads may start others."""
    while started := _started(before):
        plain = next((thread for thread in started if _executor(thread) is None), None)
        if plain is None and (executor := _executor(started[0])) is not None:
            executor.shutdown()
        (plain or started[0]).join()


def _started(before: Collection[Thread]) -> list[Thread]:
    apart = {*before, threading.current_thread()}
    return [
        thread
        for thread in threading.enumerate()
        if thread.is_alive() and not thread.daemon and thread not in apart and not thread.name.startswith(OWN)
    ]


def _executor(thread: Thread) -> Executor | None:
    """Whose work the thread does, and waits for more until that is shut down. Threads know it by a weak reference: of a
    pool of threads as an argument, of one of processes as an attribute."""
    told = (*getattr(thread, "_args", ()), getattr(thread, "executor_reference", None))
    found = (one() for one in told if isinstance(one, weakref.ref))
    return next((one for one in found if isinstance(one, Executor)), None)
