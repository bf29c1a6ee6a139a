"""`kscope run --survive`, `--timeout` and `--core`: runs the program in a child, and says where its warps were."""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ...capture.pools import held_memory
from ...errors import UsageError
from ...session.states import SURVIVE_VARIABLE
from . import launched
from .program import note

if TYPE_CHECKING:
    from .core_dumps import CoreDumps
    from .left_pools import LeftPools
    from .torch_dumps import TorchDumps

TIMED_OUT, BY_SIGNAL = 124, 128
"""Exit codes: after --timeout, as timeout(1) has it; after a signal, plus its number."""
_CHILD = "KSCOPE_SUPERVISED"
_HOLD_S, _LOOK_S, _GRACE_S = 0.1, 1.0, 10.0
"""Seconds between two searches for new pools, between two observations, and for a program to end after a signal."""
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG = 1
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s|m|h)?")
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}


def add(parser: argparse.ArgumentParser) -> None:
    """Add --timeout and --core."""
    about = "end a program that takes longer (60s, 10m) and show where its warps are; implies --survive shm"
    parser.add_argument("--timeout", metavar="TIME", help=about)
    parser.add_argument(
        "--core", action="store_true",
        help="have the driver dump the GPU, which ENDS the program: when kscope watch --core asks, at --timeout, and"
        " when a kernel fails; shows the source line of every warp, without marks",
    )  # fmt: skip


def is_required(options: argparse.Namespace) -> bool:
    """True if this process must run the program in a child; False in that child."""
    if os.environ.pop(_CHILD, None):
        held_memory.held_by(os.getppid())
        return False
    return bool(options.timeout or options.core or options.survive or os.environ.get(SURVIVE_VARIABLE))


def run(options: argparse.Namespace) -> int:
    """Run the command line in a child, and forward signals. Returns its exit code.

    Prints the verdict if the child dies by a signal, fails on the device, or takes too long: only another process can
    report on a program that was killed. Raises UsageError for a wrong --timeout.
    """
    most = None if options.timeout is None else duration(options.timeout)
    with _core_dumps() if options.core else nullcontext() as cores:
        return _run(options, most, cores)


def _core_dumps() -> CoreDumps:
    from .core_dumps import CoreDumps  # only with --core

    return CoreDumps()


def _run(options: argparse.Namespace, most: float | None, cores: CoreDumps | None) -> int:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    try:
        child = subprocess.Popen(
            [sys.executable, str(Path(launched.__file__).with_name("__main__.py")), *options.typed],
            env={**os.environ, **(cores.environment if cores else {}), _CHILD: "1"},
            preexec_fn=lambda: _as_child(before),
        )
        if cores and not options.quiet:
            note(f"--core: kscope watch --core {os.getpid()} shows where every warp is, and ends the program")
        return _wait(child, None if most is None else time.monotonic() + most, options.timeout, cores)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _as_child(mask: set[int | signal.Signals]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _wait(child: subprocess.Popen[bytes], until: float | None, typed: str | None, cores: CoreDumps | None) -> int:
    from .left_pools import LeftPools  # meanwhile the child starts
    from .torch_dumps import TorchDumps

    pools, dumps = LeftPools(child.pid), TorchDumps(os.environ)
    look = time.monotonic() + _LOOK_S
    while child.poll() is None:
        left = _HOLD_S if until is None else min(_HOLD_S, until - time.monotonic())
        if left <= 0:
            note(f"timeout: the program has run for {typed}; ending it")
            pools.show()
            if cores:
                cores.take(child.pid)
            _end(child)
            pools.keep()
            return TIMED_OUT
        arrived = signal.sigtimedwait([*_PASSED_ON, signal.SIGCHLD], left)
        if arrived is not None and arrived.si_signo != signal.SIGCHLD and arrived.si_code <= 0:
            child.send_signal(arrived.si_signo)  # a terminal's signal also goes to the child
        pools.hold()
        if time.monotonic() > look:
            look = time.monotonic() + _LOOK_S
            pools.look()
            _beside(dumps, pools)
    if child.returncode < 0:
        note(f"the program was ended by {signal.Signals(-child.returncode).name}")
    _beside(dumps, pools)
    pools.show()
    if cores:
        cores.show()
    pools.keep()
    return child.returncode if child.returncode >= 0 else BY_SIGNAL - child.returncode


def _beside(dumps: TorchDumps, pools: LeftPools) -> None:
    """Write where the warps are beside torch's dump about a collective that takes too long."""
    if dumps.is_new() and (lines := pools.lines()):
        try:
            note(f"torch has written its flight recorder's dump; where the warps were: {dumps.add(lines)}")
        except OSError as error:
            note(f"torch has written its flight recorder's dump; kscope cannot write beside it: {error}")


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a program. It has a grace period to save its records."""
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
