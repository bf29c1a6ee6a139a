"""A plugin of pytest: a test that hangs on the GPU ends with a report of where its warps were.

pytest --kscope-timeout 60                  # tests whose own sessions record
pytest --kscope-timeout 60 --kscope-record  # every test, with marks at waits
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from contextlib import suppress
from typing import Any

TIMED_OUT = 124
"""Exit code of pytest, as of `kscope run --timeout`."""


def pytest_addoption(parser: Any) -> None:
    """Add the options."""
    group = parser.getgroup("kscope")
    timeout = "end pytest when a test takes longer, and show where the warps of its kernels are"
    group.addoption("--kscope-timeout", metavar="SECONDS", type=float, help=timeout)
    record = "record every test, with marks at waits; for tests without a session"
    group.addoption("--kscope-record", action="store_true", help=record)


def pytest_configure(config: Any) -> None:
    """Watch the tests if an option requests it."""
    seconds, record = config.getoption("--kscope-timeout"), config.getoption("--kscope-record")
    if seconds is None and not record:
        return
    from kscope.session.states import SURVIVE_VARIABLE

    os.environ.setdefault(SURVIVE_VARIABLE, "shm")
    config.pluginmanager.register(Watchdog(seconds, record), "kscope watchdog")


class Watchdog:
    """Ends the process when a test takes too long.

    Args:
        seconds: time limit of a test; None for none.
        record: a session records each test.
    """

    def __init__(self, seconds: float | None, record: bool) -> None:
        self._seconds, self._record = seconds, record
        self._errors = os.dup(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2)  # pytest captures stderr
        self._timer: threading.Timer | None = None
        self._session: Any = None

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        if self._seconds is not None:
            self._timer = threading.Timer(self._seconds, self._late, (nodeid,))
            self._timer.daemon = True
            self._timer.start()
        if self._record:
            from kscope.session.profile import profile

            self._session = profile(auto="wait").start()

    def pytest_runtest_logfinish(self) -> None:
        """A test has ended."""
        if self._timer is not None:
            self._timer.cancel()
        session, self._session = self._session, None
        if session is not None:
            session.stop()

    def _late(self, nodeid: str) -> None:
        """In a thread, while the test waits in C."""
        self._print(f"\nkscope: {nodeid} has run for {self._seconds:g} s")
        with suppress(Exception):  # the process ends in any case
            for line in _verdicts():
                self._print(f"kscope: {line}")
        faulthandler.dump_traceback(self._errors)
        os._exit(TIMED_OUT)

    def _print(self, text: str) -> None:
        os.write(self._errors, f"{text}\n".encode())


def _verdicts() -> list[str]:
    """The verdicts from this process's pool files."""
    from kscope.capture.pools import pool_folder
    from kscope.capture.pools.pool_reading import open_pool
    from kscope.watching import text
    from kscope.watching.verdict import verdict

    pools = [open_pool(path) for path in pool_folder.of_process(os.getpid())]
    lines = [line for pool in pools for line in (*text.lines(verdict(pool)), f"kscope summary {pool.path}")]
    return lines or ["nothing records: use kscope.profile() in the test, or --kscope-record"]
