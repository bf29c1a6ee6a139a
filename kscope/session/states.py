"""Plain, prepared, armed: which of them this process is in, for every frontend at once.

    plain      no marks are compiled
    prepared   marks are compiled and rest                          enable() ... disable()
    armed      marks record                                         with profile(): ...

What lives here: the state, and frontends that follow it, those imported later too. What does not: what an
armed process records (session.py), hooks of a DSL (frontends).
"""

from __future__ import annotations

import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..errors import KscopeError, UnsupportedError, UsageError
from ..instrument import registry
from ..instrument.recording import Clock, Fill, Recording
from ..instrument.selection.auto import Selection
from ..marks.strategies import Strategy
from .import_hook import Watcher
from .kernel_filter import Patterns


@dataclass
class State:
    """What this process is in.

    hooked: the recording that frontends compile for now, and which frontends (`names`). active: the session
    that is armed, in which process, and how a backend joins it. arrived: DSLs whose import has just ended.
    """

    prepared: Recording | None = None
    active: object = None
    pid: int = 0
    arm: Callable[[str], None] | None = None
    hooked: Recording | None = None
    names: list[str] = field(default_factory=list)
    watcher: Watcher | None = None
    arrived: deque[str] = field(default_factory=deque)
    lock: threading.RLock = field(default_factory=threading.RLock)


STATE = State()


def _forked() -> None:
    """Who had the state is not in the child, and would have it for ever."""
    STATE.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def recording(**typed: Any) -> Recording:
    """The options that were typed, the rest as prepared, else the defaults. Raises UsageError."""
    given = {name: value for name, value in typed.items() if value is not None}
    return replace(STATE.prepared or Recording(), **given)


def hook(wanted: Recording | None) -> None:
    """Make every frontend that is imported, now or later, compile for `wanted`; None = plain."""
    if wanted == STATE.hooked and wanted is not None:
        return
    if STATE.watcher is not None:
        STATE.watcher.remove()
        STATE.watcher = None
    if wanted is None:
        for name in STATE.names:
            registry.frontend(name).disable()
        STATE.hooked, STATE.names = None, []
        return
    STATE.hooked = wanted
    STATE.watcher = Watcher({entry.dsl for entry in registry.table().values()}, _imported)
    STATE.watcher.install()
    unfit: list[UnsupportedError] = []
    for name in list(registry.imported()):
        try:
            _join(name)
        except UnsupportedError as error:
            unfit.append(error)
    if unfit and not STATE.names:
        raise unfit[0]
    for found in unfit:  # what is imported beside it can be recorded
        warnings.warn(f"{found}: its kernels are not recorded", RuntimeWarning, stacklevel=4)


def _join(name: str) -> None:
    """One frontend compiles for what is hooked, and its backend joins the session."""
    assert STATE.hooked is not None
    registry.frontend(name).enable(STATE.hooked)
    if name not in STATE.names:
        STATE.names.append(name)
    if STATE.arm is not None:
        STATE.arm(registry.frontend(name).backend)


@contextmanager
def alone() -> Generator[None]:
    """Within, no other thread changes the state."""
    try:
        with STATE.lock:
            yield
    finally:
        try:
            _admit()
        except KscopeError as error:  # of an import that has ended: it cannot raise this any more
            warnings.warn(f"{error}: its kernels are not recorded", RuntimeWarning, stacklevel=4)


def _imported(dsl: str) -> None:
    """Does not wait until the state is free: who has it may be waiting for this very import. A DSL that cannot be
    recorded, as it is too old, is nothing that its import may fail for."""
    STATE.arrived.append(dsl)
    try:
        _admit()
    except UnsupportedError as error:
        warnings.warn(f"{error}: its kernels are not recorded", RuntimeWarning, stacklevel=2)


def _admit() -> None:
    """Frontends of DSLs that have arrived follow the state: now where it is free, else whoever has it sees to it."""
    while STATE.arrived and STATE.lock.acquire(blocking=False):
        try:
            dsl = STATE.arrived.popleft()
            for name, entry in registry.table().items():
                if entry.dsl == dsl and STATE.hooked is not None:
                    _join(name)
        finally:
            STATE.lock.release()


def refuse_nested(what: str) -> None:
    """Raises UsageError while a session is armed."""
    if STATE.active is None:
        return
    if STATE.pid != os.getpid():
        raise UsageError(
            f"{what}: this process was forked while its parent was recording; start it with multiprocessing's "
            "'spawn' method, or profile in the parent after the fork"
        )
    raise UsageError(
        f"{what} inside of a profile(): one session records at a time; leave the first one before. `kscope run` is a "
        "session too: start a script that records itself with python"
    )


@contextmanager
def taken() -> Generator[None]:
    """Within, what the process is in belongs to somebody: enable(), disable() and profile() are refused."""
    STATE.active, STATE.pid = object(), os.getpid()
    try:
        yield
    finally:
        STATE.active = None


def enable(
    *,
    strategy: Strategy | None = None,
    records: int | Literal["auto"] | None = None,
    fill: Fill | None = None,
    clock: Clock | None = None,
    live: bool | None = None,
    auto: str | Sequence[str] | bool | None = None,
    regions: str | Sequence[str] | Mapping[str, str] | None = None,
    kernels: str | Sequence[str] | None = None,
) -> None:
    """Prepare: kernels compiled from now on carry their marks, at rest until profile() arms them. May be
    called again with other options. Options are those of profile(); kernels: those that auto and regions mark.

    Raises UsageError for an option that means nothing, or inside of a profile(); UnsupportedError where a
    DSL that is imported lacks what kscope needs of it.
    """
    with alone():
        refuse_nested("kscope.enable()")
        selection = Selection.of(auto, regions, Patterns.of(kernels).names)
        given = {"strategy": strategy, "records": records, "fill": fill, "clock": clock, "live": live}
        typed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        wanted = Recording(**typed, selection=selection or Selection())
        try:
            hook(wanted)
        except BaseException:
            hook(None)
            STATE.prepared = None
            raise
        STATE.prepared = wanted


def disable() -> None:
    """Plain again: kernels compiled from now on carry nothing. Raises UsageError inside of a profile()."""
    with alone():
        refuse_nested("kscope.disable()")
        STATE.prepared = None
        hook(None)
