"""profile() and its Session: kernels record in the body of a `with`."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from ..capture.capture import Capture
from ..capture.layout import MAX_SMS, SEGMENT_BYTES
from ..capture.model import DeviceCapture, ModuleMeta, Problem
from ..errors import MissingError, UsageError
from ..instrument import registry
from ..instrument.backend import Backend
from ..instrument.recording import Clock, Fill
from ..instrument.sampling import Sampling
from ..instrument.selection.auto import Selection, unmatched
from ..marks.strategies import Strategy
from . import capture_path
from .host_info import facts
from .kernel_filter import Patterns, only
from .outputs import Finish, Passes, Paths
from .states import STATE, alone, hook, recording, refuse_nested
from .states import disable as disable
from .states import enable as enable

if TYPE_CHECKING:
    from ..trace import Trace

FATAL = "driver"
"""Kind of the problem of a backend whose device broke during the session."""
COMPILED = ("strategy", "records", "fill", "clock", "live", "selection")
"""Options that kernels are compiled for."""
MOST_POOL = (MAX_SMS + 2) * SEGMENT_BYTES
"""Bytes: a ring for each SM and one that all share, of the largest size, and room to move them."""
_epochs = count(1)


def profile(
    path: str | os.PathLike[str] | None = None,
    *,
    strategy: Strategy | None = None,
    records: int | Literal["auto"] | None = None,
    fill: Fill | None = None,
    clock: Clock | None = None,
    live: bool | None = None,
    blocks: SupportsIndex | range | slice | None = None,
    warps: SupportsIndex | Iterable[SupportsIndex] | None = None,
    sms: SupportsIndex | Iterable[SupportsIndex] | None = None,
    pool: int | None = None,
    kernels: str | Sequence[str] | None = None,
    auto: str | Sequence[str] | bool | None = None,
    regions: str | Sequence[str] | Mapping[str, str] | None = None,
    then: Passes | None = None,
    export: Paths | None = None,
    enabled: bool = True,
) -> Session:
    """Record the kernels that are launched in the body of ``with profile(...) as prof:``.

    path: where the capture is saved at the end (name.kscope), checked before anything runs. After a body
        that raised, what was recorded is saved as name.failed.kscope, and `path` is left as it was.
    strategy, records, fill, clock, live: what kernels are compiled for, see Recording; None = as enable()
        said, else Recording's defaults.
    blocks, warps, sms: who records, see Sampling.of(); needs no compilation.
    pool: bytes of device memory to record into, per device; None = the smaller of 1 GiB and 1/32 of what
        is free. What is recorded is drained while kernels run: the pool bounds bursts, not the session.
    kernels: kernels to keep: names with * and ?, or hashes such as "0x7fa21c3". The others record as well and are
        left out at the end; what auto and regions ask for is not compiled into kernels of other names at all.
    auto, regions: what to mark in kernels that are not annotated, see auto.Selection.of(): kinds of operation
        ("wait,wgmma,loops"; True = the usual ones), and lines of source ("load=attn.py:41-47"). None = as
        enable() said; False = nothing.
    then: functions from a trace to a trace, run over prof.trace (see passes).
    export: files to export that trace to when the body has ended and did not raise, checked before anything runs.
    enabled: False = nothing is recorded, compiled or written, as if the `with` were not there.

    Raises UsageError for options that mean nothing, a path that cannot be written, or a session in a
    session; MissingError where no imported DSL has a GPU or driver to run on; DriverError.
    """
    patterns = Patterns.of(kernels)
    return Session(
        None if path is None else capture_path.check(path),
        (strategy, records, fill, clock, live, Selection.of(auto, regions, patterns.names)),
        Sampling.of(blocks, warps, sms),
        _pool(pool),
        patterns,
        Finish.of(export, then),
        enabled,
    )


def _pool(pool: int | None) -> int | None:
    if pool is not None and (not isinstance(pool, int) or isinstance(pool, bool) or pool <= 0):
        raise UsageError(f"pool={pool!r}: expected a number of bytes, such as 512 << 20")
    if pool is not None and pool > MOST_POOL:
        raise UsageError(f"pool={pool!r}: expected at most {MOST_POOL} bytes, which is more than a GPU has rings for")
    return pool


def _left(error: BaseException | None) -> bool:
    """Whether a program ended as it wished to."""
    return isinstance(error, SystemExit) and error.code in (None, 0)


class Session:
    """What profile() returns: a context manager, and afterwards what was recorded."""

    def __init__(
        self, path: Any, compiled: tuple[Any, ...], sampling: Sampling, pool: int | None, kernels: Patterns,
        finish: Finish, enabled: bool,
    ) -> None:  # fmt: skip
        self.path = path
        self._typed = dict(zip(COMPILED, compiled, strict=True))
        self._recording = recording(**self._typed)
        self._sampling, self._pool, self._kernels = sampling, pool, kernels
        self._finish, self.enabled = finish, enabled
        self._epoch = 0
        self._started = 0
        self._backends: dict[str, Backend] = {}
        self._absent: dict[str, MissingError] = {}
        self._paused = False
        self._capture: Capture | None = None
        self._trace: tuple[Capture, Trace] | None = None

    # what a user reads

    @property
    def capture(self) -> Capture:
        """What was recorded, as raw words: all of it after the body, what is there so far within.
        Raises UsageError before."""
        if self._capture is not None:
            return self._capture
        if STATE.active is not self:
            raise UsageError("prof.capture: nothing is recorded before the body of `with kscope.profile() as prof:`")
        return self._collect(wait=False)

    @property
    def trace(self) -> Trace:
        """The capture, decoded and passed through `then`; after the body once. Raises UsageError before the body."""
        capture = self.capture
        if self._trace is None or self._trace[0] is not capture:
            self._trace = capture, self._finish.trace(capture)
        return self._trace[1]

    # what a user does within the body

    def reset(self) -> None:
        """Start again: what was recorded so far is dropped, and what running warps record yet. A launch that
        waits in a stream and begins later records."""
        with alone():  # a language that arrives meanwhile joins before or after
            if not self._within("reset"):
                return
            self._epoch, self._started = next(_epochs), time.time_ns()
            for name in STATE.names:
                registry.frontend(name).begin()
            for backend in self._backends.values():
                backend.arm(self._epoch, self._sampling, self._pool)
                if self._paused:
                    backend.disarm()

    @contextmanager
    def paused(self) -> Generator[None, None, None]:
        """Warps that begin within do not record. Nothing is compiled, nothing is waited for: a launch that
        straddles an end of the pause is recorded in part."""
        if not self._within("paused"):
            yield
            return
        if self._paused:
            raise UsageError("prof.paused() inside of prof.paused(): the session is paused already")
        with alone():
            self._paused = True
            for backend in self._backends.values():
                backend.disarm()
        try:
            yield
        finally:
            with alone():
                self._paused = False
                if STATE.active is self:
                    for backend in self._backends.values():
                        backend.resume()

    def _within(self, what: str) -> bool:
        """Whether the session records. Raises UsageError outside of its body."""
        if STATE.active is not self and self.enabled:
            raise UsageError(f"prof.{what}() outside of the body of `with kscope.profile() as prof:`")
        return self.enabled

    # the states

    def __enter__(self) -> Session:
        if not self.enabled:  # in the body of another session, too
            off = Problem("off", "nothing was recorded: profile(enabled=False)")
            self._capture = Capture(0, (), (), problems=(off,), host=facts(time.time_ns()))
            return self
        with alone():
            refuse_nested("kscope.profile()")
            if self._capture is not None:
                raise UsageError("this profile() has recorded already: call kscope.profile() again")
            self._recording = recording(**self._typed)
            self._epoch, self._started = next(_epochs), time.time_ns()
            self._backends, self._absent = {}, {}  # of a first try that failed
            STATE.active, STATE.pid = self, os.getpid()
            try:
                hook(self._recording)
                for name in STATE.names:
                    registry.frontend(name).begin()
                    self._arm(registry.frontend(name).backend)
                if self._absent and not self._backends:
                    raise next(iter(self._absent.values()))
                STATE.arm = self._arm
            except BaseException:
                self._close()
                raise
        return self

    def _arm(self, name: str) -> None:
        if name in self._backends:
            return
        try:
            backend = registry.backend(name)
        except MissingError as error:  # torch imports Triton also where there is no GPU: others may record
            self._absent[name] = error
            return
        try:
            backend.arm(self._epoch, self._sampling, self._pool)
        except BaseException:
            backend.disarm()  # of several devices the first ones are armed
            raise
        self._backends[name] = backend
        if self._paused:
            backend.disarm()

    def _close(self) -> None:
        """Back to the state before, with no compilation where that was prepared for the same recording."""
        for backend in self._backends.values():
            backend.disarm()
        STATE.active = STATE.arm = None
        hook(STATE.prepared)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.enabled:
            return
        if STATE.pid != os.getpid():  # a fork leaves what was its parent's: nothing of it is waited for or saved
            STATE.active = STATE.arm = None
            return
        # whoever interrupts does not want to wait for kernels that may never end
        wait = not isinstance(error, KeyboardInterrupt)
        with alone():
            try:
                for backend in self._backends.values() if wait else ():
                    try:
                        backend.wait()  # launches return before their kernels run: their last blocks still begin
                    except KeyboardInterrupt:
                        wait = False
                        break
                for backend in self._backends.values():
                    backend.disarm()
                self._capture = self._collect(wait=wait)
            finally:
                self._close()
            if self.path is not None:
                self._save(error)
            if (error is None or _left(error)) and self._finish.files:
                self._finish.write(self.trace)

    def _save(self, error: BaseException | None) -> None:
        assert self._capture is not None
        fatal = [problem for problem in self._capture.problems if problem.kind == FATAL]
        if (error is None or _left(error)) and not fatal:
            self._capture.save(self.path)
            return
        path = capture_path.failed(self.path)
        self._capture.save(path)
        if error is None:
            warnings.warn(f"{fatal[0].text}; saved as {path}", RuntimeWarning, stacklevel=3)
        elif (add_note := getattr(error, "add_note", None)) is not None:  # Python 3.11
            add_note(f"kscope: what was recorded until then is in {path}")

    # what comes out

    def _collect(self, *, wait: bool) -> Capture:
        devices: list[DeviceCapture] = []
        problems = [one for name in STATE.names for one in registry.frontend(name).problems()]
        backends = tuple(self._backends.values())  # another may join while these are read in the body
        for backend in backends:
            try:
                devices += backend.collect(wait=wait)
            except KeyboardInterrupt:
                devices += backend.collect(wait=False)
        for backend in backends:
            problems += backend.problems()
        for name, error in tuple(self._absent.items()):
            problems.append(Problem("absent", f"nothing is recorded on {name}: {error}"))
        if not backends and not self._absent:
            known = ", ".join(entry.dsl for entry in registry.table().values())
            problems.append(Problem("nothing", f"no kernel language that kscope knows was imported ({known})"))
        modules = tuple(meta for backend in backends for meta in backend.modules())
        problems += self._unselected(modules)
        capture = Capture(
            epoch=self._epoch,
            devices=tuple(devices),
            modules=modules,
            options=self._options(),
            problems=tuple(dict.fromkeys(problems)),
            host=facts(self._started),
        )
        return only(capture, self._kernels)

    def _unselected(self, modules: tuple[ModuleMeta, ...]) -> list[Problem]:
        """What auto and regions asked for in vain."""
        selection = self._recording.selection
        able = {what for name in STATE.names for what in registry.frontend(name).selects}
        possible = replace(selection, kinds=selection.kinds if "kinds" in able else ())
        found = list(unmatched(possible, modules)) if not self._paused else []
        asked = {"kinds": "auto= (kinds of operation)", "lines": "regions= (lines of source)"}
        missing = [text for what, text in asked.items() if getattr(selection, what) and what not in able]
        if missing and STATE.names:
            names = ", ".join(STATE.names)
            found.append(Problem("nothing", f"{' and '.join(missing)}: not possible with what was imported ({names})"))
        return found

    def _options(self) -> dict[str, Any]:
        """The options in words, as they may stand in JSON."""
        compiled, sampling = self._recording, self._sampling
        words = {
            "strategy": compiled.strategy.spec,
            "records": compiled.records,
            "fill": compiled.fill,
            "clock": compiled.clock,
            "live": compiled.live,
            "auto": list(compiled.selection.kinds) or None,
            "regions": [str(lines) for lines in compiled.selection.lines] or None,
            "blocks": sampling.blocks and [sampling.blocks.start, sampling.blocks.stop, sampling.blocks.step],
            "warps": sampling.warps and list(sampling.warps),
            "sms": sampling.sms and list(sampling.sms),
            "pool": self._pool,
            "kernels": list(self._kernels.globs) or None,
        }
        return {name: value for name, value in words.items() if value is not None}
