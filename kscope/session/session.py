"""The session that profile() returns: records in a `with` body, in a decorated function, or from start() to stop()."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from functools import partial
from html import escape
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..capture.capture import Capture
from ..capture.capture_data import LaunchCount
from ..capture.model import Problem
from ..errors import MissingError, UsageError
from ..instrument import registry
from ..instrument.backend import Backend
from ..instrument.launch_lines import LINES
from ..instrument.options import Options, in_effect
from . import capture_path
from .host_info import facts
from .kernel_filter import Patterns, only, unselected
from .nothing_recorded import absent
from .outputs import Finish
from .pausing import Pausing
from .save import FATAL, add_failure, exited_normally, save
from .signal_safe_exit import PerStatement
from .stalls import Stalls
from .states import STATE, exclusive, hook, recording, refuse_nested, remove_handler
from .termination import Termination
from .torch_profiler import WithTorch
from .used_devices import used_devices

if TYPE_CHECKING:
    from ..trace import Trace
    from .survival import Survival

_EPOCHS = count(1)


class Session(WithTorch, Pausing):
    """The result of kscope.profile(): a context manager and a decorator, which has the recording afterwards.

    Attributes:
        path: the file that the capture is saved to; None for none.
        saved: the file that was written at the end; None if none was.
        enabled: False if the session records nothing.
    """

    def __init__(self, path: Path | None, options: Options, finish: Finish, enabled: bool) -> None:
        self.saved: Path | None = None
        self.path, self.enabled, self._options, self._finish, self._torch = path, enabled, options, finish, finish.torch
        self._folder = None if path is None else path.absolute().parent
        self._kernels = Patterns.of(options.kernel)
        self._recording = recording(options)
        self._subset, self._pool = options.subset(), options.pool_bytes()
        self._stalls = Stalls(options.sampling_period())
        self._named = {"pool": self._pool, "kernel": self._kernels.globs, **self._stalls.options}
        self._named["launch_stacks"] = options.launch_stacks
        self._epoch = self._started = 0
        self._backends: dict[str, Backend] = {}
        self._absent: dict[str, MissingError] = {}
        self._paused = self._was_paused = False
        self._launches: dict[int, LaunchCount] = {}  # by kernel id, before the wait at the end
        self._capture: Capture | None = None
        self._trace: tuple[Capture, Trace] | None = None
        self._survival: Survival | None = None
        self._statement: weakref.ref[Callable[..., None]] | None = None

    def __repr__(self) -> str:
        state = "recording" if STATE.active is self else "not started" if self._capture is None else "recorded"
        where = f", saved to {self.saved}" if self.saved else f", to be saved to {self.path}" if self.path else ""
        return f"<kscope.Session: {state}{'' if self.enabled else ', off'}{where}>"

    def _repr_html_(self) -> str:
        """The trace's summary after the recording, for notebooks."""
        return escape(repr(self)) if self._capture is None else self.trace.html()

    def _renew(self) -> None:
        self._capture = self._trace = self.saved = None
        self._launches, self._paused, self._was_paused = {}, False, False

    @property
    def capture(self) -> Capture:
        """The capture: everything recorded after the body, everything so far inside it.

        Raises:
            UsageError: the body has not begun.
        """
        if self._capture is not None:
            return self._capture
        if STATE.active is not self:
            raise UsageError(
                "prof.capture: nothing is recorded before the body of `with kscope.profile() as prof:` or prof.start()"
            )
        return self._collect(wait=False)

    @property
    def trace(self) -> Trace:
        """The capture, decoded and passed through `then`.

        Raises:
            UsageError: the body has not begun.
        """
        capture = self.capture
        if self._trace is None or self._trace[0] is not capture:
            self._trace = capture, self._finish.trace(capture)
        return self._trace[1]

    def reset(self) -> None:
        """Start again: drop all records so far, and those that running warps still make.

        A launch that waits in a stream and begins later is recorded.

        Raises:
            UsageError: outside the session's body.
        """
        with exclusive():  # a DSL imported meanwhile joins before or after
            if not self._within("reset"):
                return
            self._epoch, self._started = next(_EPOCHS), time.time_ns()
            LINES.begin(LINES.enabled)
            self._survive()
            for backend in self._backends.values():
                self._arm(backend)
            for name in STATE.names:
                registry.frontend(name).begin()

    def _within(self, what: str) -> bool:
        """True if the session records. Raises UsageError outside its body."""
        if STATE.active is not self and self.enabled:
            raise UsageError(
                f"prof.{what}() outside the body of `with kscope.profile() as prof:`, or before prof.start()"
            )
        return self.enabled

    def __enter__(self) -> Session:
        if not self.enabled:  # also allowed inside another session
            off = Problem("off", "nothing was recorded: profile(enabled=False)")
            self._capture = Capture(0, (), (), problems=(off,), host=facts(time.time_ns()))
            return self
        began = False
        for name in tuple(STATE.names):
            registry.frontend(name).prepare()
        try:
            with exclusive():
                refuse_nested("kscope.profile()")
                if self._capture is not None:
                    raise UsageError("this profile() has recorded already: call kscope.profile() again")
                began = True
                self._begin()
            return self
        except BaseException:
            if began:
                with exclusive():
                    self._is_complete = True  # nothing was recorded
                    self._close()
                    remove_handler()
            raise

    def _begin(self) -> None:
        self._recording = recording(self._options)
        self._become_active()
        self._survive()
        hook(self._recording)
        for name in STATE.names:
            self._join(name)
        if self._absent and not self._backends:
            raise next(iter(self._absent.values()))
        STATE.join = self._join
        self._read_timers("begin")
        LINES.begin(bool(self._options.launch_stacks))

    def _become_active(self) -> None:
        """Become the active session."""
        if self._statement is not None and self._statement() is None:  # not in a `with` statement
            self._statement = None
        self._epoch, self._started = next(_EPOCHS), time.time_ns()
        self._backends, self._absent = {}, {}  # an earlier attempt may have failed
        STATE.active, STATE.release, STATE.pid = self, self._release, os.getpid()
        if self.path is not None:
            STATE.termination = Termination(self._terminated)
            STATE.termination.install()

    def _survive(self) -> None:
        """New pool files, of a session with survive=."""
        if self._survival is not None:
            self._survival.end(keep=False)
        self._survival, self._is_complete = None, False
        if self._recording.survive:
            from .survival import Survival  # of few sessions

            self._survival = Survival(self._recording, self._subset, self._epoch, self._started, self._in_effect())

    def _join(self, name: str) -> None:
        """Arm a new frontend's backend, and let its launches run marked kernels."""
        frontend = registry.frontend(name)
        if frontend.backend not in self._backends:
            try:
                backend = registry.backend(frontend.backend)
            except MissingError as error:  # torch imports Triton even without a GPU: other frontends may record
                self._absent[frontend.backend] = error
            else:
                self._arm(backend)
                self._backends[frontend.backend] = backend
        frontend.begin()

    def _arm(self, backend: Backend) -> None:
        """Let a backend record from now on, unless the session is paused."""
        backend.survive(None if self._survival is None else self._survival.open)
        try:
            backend.arm(self._epoch, self._subset, self._pool, self._folder)
        except BaseException:
            backend.disarm()  # some of several devices may be armed already
            raise
        self._stalls.begin(backend, self._epoch)
        if self._paused:
            backend.disarm()

    def _close(self) -> None:
        """Return to the state before the session; nothing is recompiled if that state has the same options."""
        if STATE.active is not self:
            return
        STATE.active = STATE.join = STATE.release = self._statement = None
        LINES.end()
        survival, self._survival = self._survival, None
        if survival is not None:
            survival.end(keep=not self._is_complete)
        try:
            for backend in self._backends.values():
                backend.disarm()
            self._stalls.end(wait=True)
        finally:
            hook(STATE.prepared)
            for name in STATE.names:
                registry.frontend(name).end()

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.enabled:
            return
        if STATE.pid != os.getpid():  # a forked child leaves its parent's session alone
            STATE.active = STATE.join = None
            return
        ended = error
        with exclusive() as signals:
            if STATE.active is not self:
                return
            wait = not isinstance(error, KeyboardInterrupt)  # after Ctrl-C: kernels may never end
            try:
                if wait:
                    signals.let(self._wait)  # launched blocks may not have begun yet
            except BaseException as stop:
                wait, ended = False, stop
            try:
                self._end(ended, wait=wait)
            except Exception as failure:
                if exited_normally(ended):
                    raise
                assert ended is not None
                add_failure(ended, failure)
        if ended is not None and ended is not error:
            raise ended
        if exited_normally(error) and self._capture is not None:
            self._finish.write(self._capture, lambda: self.trace)

    def _bind(self) -> Callable[..., None]:
        leave = partial(self._leave)
        if STATE.active is not self:
            self._statement = weakref.ref(leave, self._dropped)
        return leave

    __exit__ = PerStatement(_leave, _bind)

    def _dropped(self, statement: object) -> None:
        """Leave if the `with` statement has ended without it."""
        if STATE.active is self:
            self._leave(KeyboardInterrupt, KeyboardInterrupt(), None)

    def _terminated(self) -> str:
        """Save the host's records, in the thread of SIGTERM; returns a message."""
        capture = self._collect(wait=False) if STATE.active is self else self._capture
        if capture is None or self.path is None or self.saved is not None:
            return ""  # another thread has ended the session: the handler is still there
        file = capture_path.failed_path(self.path)
        capture.save(file)
        return f"the recording up to then is in {file}"

    def _release(self) -> None:
        """Disarm if the `with` statement has ended, and even that was interrupted."""
        if self._statement is not None and self._statement() is None:
            self._close()
            remove_handler()

    def _wait(self) -> None:
        for name in [] if self._was_paused else STATE.names:
            self._launches |= registry.frontend(name).launches()
        for backend in self._backends.values():
            backend.wait()
        self._read_timers("end")

    def _end(self, error: BaseException | None, *, wait: bool) -> None:
        """Collect, close and save."""
        try:
            try:
                for backend in self._backends.values():
                    backend.disarm()
                self._stalls.end(wait=wait)
                self._capture = self._collect(wait=wait)
                fatal = any(problem.kind == FATAL for problem in self._capture.problems)
                unfinished = self._survival is not None and self._survival.has_unfinished(self._capture)
                self._is_complete = wait and not fatal and not unfinished
            finally:
                self._close()
            if self.path is not None:
                self.saved = save(self._capture, self.path, error)
        finally:
            remove_handler()

    def _in_effect(self) -> dict[str, Any]:
        return in_effect(self._recording, self._subset, **self._named)

    def _collect(self, *, wait: bool) -> Capture:
        problems = [one for name in STATE.names for one in registry.frontend(name).problems()]
        backends = tuple(self._backends.values())  # a copy: another may join meanwhile
        devices = [device for backend in backends for device in backend.collect(wait=wait)]
        problems += [problem for backend in backends for problem in backend.problems()]
        modules = tuple(meta for backend in backends for meta in backend.modules())
        problems += absent(len(backends), self._absent, modules)
        problems += [] if self._paused else unselected(self._recording.selection, modules, STATE.names)
        samples, unsampled = self._stalls.collected(modules, self._kernels, self._launches)
        capture = Capture(
            epoch=self._epoch,
            devices=used_devices(devices),
            modules=modules,
            options=self._in_effect(),
            problems=tuple(dict.fromkeys([*problems, *unsampled])),
            host=facts(self._started) | ({} if self._survival is None else self._survival.facts),
            launches=self._launches if wait else {},
            tuning_launches=sum(registry.frontend(name).tuning_launches() for name in STATE.names),
            samples=samples,
            **LINES.found(),
        )
        return only(capture, self._kernels)
