"""The state of this process, which every frontend follows, including ones imported later.

plain      kernels are compiled without marks
prepared   kernels also get a form with marks; launches run the plain one   enable() ... disable()
armed      launches run the form with marks, which record                   with profile(): ...
"""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from ..errors import KscopeError, UnsupportedError, UsageError
from ..instrument import registry
from ..instrument.options import Options
from ..instrument.recording import Clock, Fill, Placement, Recording, Survive
from ..marks.strategies import Strategy
from ..util.import_hook import Watcher
from ..util.signals import Held
from .kernel_filter import Patterns
from .termination import Termination

SURVIVE_VARIABLE = "KSCOPE_SURVIVE"
"""Environment variable: survive= of sessions that do not pass it."""
_POLL_S = 0.05
"""Seconds between two checks for signals while waiting for the lock."""


@dataclass
class State:
    """The state.

    Attributes:
        prepared: the options of enable(); None while plain.
        active: the armed session.
        release: disarms the session if its `with` statement ended without disarming it.
        pid: the process that armed the session.
        join: adds a frontend that is loaded later to the session, by name.
        hooked: the options for which frontends compile.
        names: the hooked frontends.
        watcher: reports imports of DSLs.
        arrived: DSLs whose import has just ended.
        termination: the session's handler of SIGTERM.
        lock: held while the state changes.
    """

    prepared: Recording | None = None
    active: object = None
    release: Callable[[], None] | None = None
    pid: int = 0
    join: Callable[[str], None] | None = None
    hooked: Recording | None = None
    names: list[str] = field(default_factory=list)
    watcher: Watcher | None = None
    arrived: deque[str] = field(default_factory=deque)
    termination: Termination | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)


STATE = State()


_FORKING = threading.local()
"""mask: this thread's signal mask before it began to fork."""


def _forking() -> None:
    """Block SIGTERM: a child that still has its parent's handler would end the parent's session."""
    is_handled = STATE.termination is not None
    _FORKING.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}) if is_handled else None


def _has_forked() -> None:
    if _FORKING.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _FORKING.mask)


def _forked() -> None:
    """The thread that held the lock does not exist in the child, nor does the session."""
    STATE.lock = threading.RLock()
    if STATE.termination is not None:
        STATE.termination.forked()
    _has_forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forking, after_in_parent=_has_forked, after_in_child=_forked)


def recording(options: Options | None = None) -> Recording:
    """The compile-time options: given ones, else those of enable(), else the defaults. Raises UsageError."""
    options = options or Options()
    return options.recording(STATE.prepared or defaults(), Patterns.of(options.kernel).names)


def defaults() -> Recording:
    """The default options. Raises UsageError for an invalid value in the environment."""
    given = os.environ.get(SURVIVE_VARIABLE)
    if not given:
        return Recording()
    try:
        return Recording(survive=given)  # type: ignore[arg-type]  # checked there
    except UsageError as error:
        raise UsageError(f"{SURVIVE_VARIABLE}={given}: {error}") from None


def hook(new: Recording | None) -> None:
    """Make every frontend imported now or later compile for `new`; None removes the hooks."""
    if new == STATE.hooked and new is not None:
        return
    if STATE.watcher is not None:
        STATE.watcher.remove()
        STATE.watcher = None
    if new is None:
        for name in STATE.names:
            registry.frontend(name).disable()
        STATE.hooked, STATE.names = None, []
        return
    STATE.hooked = new
    STATE.watcher = Watcher({entry.dsl for entry in registry.table().values()}, _imported)
    STATE.watcher.install()
    unsupported: list[UnsupportedError] = []
    for name in list(registry.imported()):
        try:
            _join(name)
        except UnsupportedError as error:
            unsupported.append(error)
    if unsupported and not STATE.names:
        raise unsupported[0]
    for found in unsupported:  # other DSLs can be recorded
        warnings.warn(f"{found}: its kernels are not recorded", RuntimeWarning, stacklevel=4)


def _join(name: str) -> None:
    """Make a frontend compile for the current options, and add it to the session."""
    assert STATE.hooked is not None
    registry.frontend(name).enable(STATE.hooked)
    if name not in STATE.names:
        STATE.names.append(name)
    if STATE.join is not None:
        STATE.join(name)


@contextmanager
def exclusive() -> Generator[Held]:
    """A context manager: no other thread changes the state inside it, and no signal handler interrupts it."""
    lock = STATE.lock  # a forked child has another
    with Held() as signals:
        while not lock.acquire(timeout=_POLL_S):
            signals.deliver()
        try:
            yield signals
        finally:
            lock.release()
            try:
                _admit()
            except KscopeError as error:  # its import has ended and cannot raise it
                warnings.warn(f"{error}: its kernels are not recorded", RuntimeWarning, stacklevel=4)


def _imported(dsl: str) -> None:
    """Note an imported DSL. Never waits for the lock, whose holder may wait for this import, and never makes the import
    fail.
    """
    STATE.arrived.append(dsl)
    try:
        with Held():
            _admit()
    except UnsupportedError as error:
        warnings.warn(f"{error}: its kernels are not recorded", RuntimeWarning, stacklevel=2)


def _admit() -> None:
    """Hook the frontends of imported DSLs: now if the lock is free, else when its holder releases it."""
    while STATE.arrived and STATE.lock.acquire(blocking=False):
        try:
            dsl = STATE.arrived.popleft()
            for name, entry in registry.table().items():
                if entry.dsl == dsl and STATE.hooked is not None:
                    _join(name)
        finally:
            STATE.lock.release()


def remove_handler() -> None:
    """Remove the SIGTERM handler: it refers to its session, and would keep the capture in memory."""
    if STATE.termination is not None and STATE.termination.remove():
        STATE.termination = None


def refuse_nested(what: str) -> None:
    """Raises UsageError while a session is armed. Call it in exclusive()."""
    if STATE.release is not None:
        STATE.release()
    if STATE.active is None:
        return
    if STATE.pid != os.getpid():
        raise UsageError(
            f"{what}: this process was forked while its parent was recording; start it with multiprocessing's "
            "'spawn' method, or profile in the parent after the fork"
        )
    raise UsageError(
        f"{what} inside a profile(): only one session records at a time; end the other one first. `kscope run` is a "
        "session, too: run a script that calls profile() with python"
    )


class _DryRun:
    """The active parts of a dry run."""


@contextmanager
def dry() -> Generator[None]:
    """A context manager: profile() raises inside it, and enable() does not replace the options."""
    STATE.active, STATE.pid = _DryRun(), os.getpid()
    try:
        yield
    finally:
        STATE.active = None


def enable(
    *,
    strategy: Strategy | str | None = None,
    records: int | Literal["auto"] | None = None,
    fill: Fill | None = None,
    clock: Clock | None = None,
    placement: Placement | None = None,
    survive: Survive | None = None,
    auto: str | Sequence[str] | bool | None = None,
    mark: str | Sequence[str] | Mapping[str, str] | None = None,
    kernel: str | Sequence[str] | None = None,
) -> None:
    """Prepare: kernels compiled from now on carry their marks, which record inside profile().

    May be called again with other options.

    Args:
        strategy, records, fill, clock, placement, survive, auto, mark: as for kscope.profile().
        kernel: names, with * and ?, of the kernels that `auto` and `mark` mark.

    Raises:
        UsageError: an option has an invalid value, or a session is active.
        UnsupportedError: an imported DSL lacks a hook point.
    """
    options = Options.of(locals())
    with exclusive():
        if isinstance(STATE.active, _DryRun):
            options.recording(defaults(), Patterns.of(options.kernel).names)  # an error if a value is invalid
            hook(STATE.prepared)
            return
        refuse_nested("kscope.enable()")
        prepared = options.recording(defaults(), Patterns.of(options.kernel).names)
        try:
            hook(prepared)
        except BaseException:
            hook(None)
            STATE.prepared = None
            raise
        STATE.prepared = prepared


def disable() -> None:
    """Undo enable(): kernels compiled from now on are plain. Raises UsageError if a session is active."""
    with exclusive():
        if not isinstance(STATE.active, _DryRun):
            refuse_nested("kscope.disable()")
            STATE.prepared = None
        hook(None)
