"""`kscope run --survive` and `--timeout`: the program in a child, and where its warps were if it ends badly.

Only another process can speak for one that was killed. It waits, passes signals on, and prints the verdict when the
child dies by a signal, fails on the device, or takes too long.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ...capture.pools import held_memory
from ...errors import UsageError
from ...session.states import SURVIVE_VARIABLE
from . import launched
from .program import note

if TYPE_CHECKING:
    from .left_pools import LeftPools
    from .torch_dumps import TorchDumps

TIMED_OUT, BY_SIGNAL = 124, 128
"""Exit codes: of a program that took too long, as timeout(1) has it; of one that a signal ended, plus its number."""
_CHILD = "KSCOPE_SUPERVISED"
_HOLD_S, _LOOK_S, _GRACE_S = 0.1, 1.0, 10.0
"""Between two looks for new pools, and two looks at them; and for a program to end after a signal."""
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG = 1
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s|m|h)?")
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}


def add(parser: argparse.ArgumentParser) -> None:
    """Add --timeout."""
    parser.add_argument(
        "--timeout", metavar="TIME",
        help="end a program that takes longer (60s, 10m) and show where its warps are; implies --survive shm",
    )  # fmt: skip


def is_wanted(options: argparse.Namespace) -> bool:
    """Whether this process is to run the program in a child; once, for one command line."""
    if os.environ.pop(_CHILD, None):
        held_memory.held_by(os.getppid())
        return False
    return bool(options.timeout or options.survive or os.environ.get(SURVIVE_VARIABLE))


def run(options: argparse.Namespace) -> int:
    """Run the command line in a child. Returns its exit code. Raises UsageError for a wrong --timeout."""
    most = None if options.timeout is None else duration(options.timeout)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    try:
        child = subprocess.Popen(
            [sys.executable, str(Path(launched.__file__).with_name("__main__.py")), *options.typed],
            env={**os.environ, _CHILD: "1"},
            preexec_fn=lambda: _as_child(before),
        )
        return _wait(child, None if most is None else time.monotonic() + most, options.timeout)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _as_child(mask: set[int | signal.Signals]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _wait(child: subprocess.Popen[bytes], until: float | None, typed: str | None) -> int:
    from .left_pools import LeftPools  # meanwhile the child starts
    from .torch_dumps import TorchDumps

    pools, dumps = LeftPools(child.pid), TorchDumps(os.environ)
    look = time.monotonic() + _LOOK_S
    while child.poll() is None:
        left = _HOLD_S if until is None else min(_HOLD_S, until - time.monotonic())
        if left <= 0:
            note(f"timeout: the program has run for {typed}; ending it")
            pools.show()
            _end(child)
            pools.keep()
            return TIMED_OUT
        arrived = signal.sigtimedwait([*_PASSED_ON, signal.SIGCHLD], left)
        if arrived is not None and arrived.si_signo != signal.SIGCHLD and arrived.si_code <= 0:
            child.send_signal(arrived.si_signo)  # a terminal's goes to the child as well
        pools.hold()
        if time.monotonic() > look:
            look = time.monotonic() + _LOOK_S
            pools.look()
            _beside(dumps, pools)
    if child.returncode < 0:
        note(f"the program was ended by {signal.Signals(-child.returncode).name}")
    _beside(dumps, pools)
    pools.show()
    pools.keep()
    return child.returncode if child.returncode >= 0 else BY_SIGNAL - child.returncode


def _beside(dumps: TorchDumps, pools: LeftPools) -> None:
    """Where the warps are, beside what torch has written about a collective that takes too long."""
    if dumps.is_new() and (lines := pools.lines()):
        try:
            note(f"torch has written its flight recorder's dump; where the warps were: {dumps.add(lines)}")
        except OSError as error:
            note(f"torch has written its flight recorder's dump; nothing is written beside it: {error}")


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a program: it may save what the host has, and then has to go."""
    child.terminate()
    try:
        child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def duration(typed: str) -> float:
    """60s, 10m or 1.5h as seconds. Raises UsageError."""
    found = _DURATION.fullmatch(typed)
    if found is None or not float(found[1]):
        raise UsageError(f"--timeout {typed}: expected a time, such as 60s or 10m")
    return float(found[1]) * _SECONDS[found[2]]
