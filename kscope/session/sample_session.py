"""A session that samples stalls and records no marks: nothing is compiled, and every kernel is sampled."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from ..capture.capture import Capture
from ..capture.model import Problem
from ..errors import MissingError
from ..instrument import registry
from ..instrument.options import Options
from . import capture_path
from .claims import claim
from .host_info import facts
from .outputs import Finish
from .session import Session, next_epoch
from .states import STATE
from .termination import Termination


class SampleSession(Session):
    """See sample()."""

    def _begin(self) -> None:
        self._epoch, self._started = next_epoch(), time.time_ns()
        self._absent = {}
        STATE.active, STATE.release, STATE.pid = self, self._release, os.getpid()
        if self.path is not None:
            STATE.termination = Termination(self._terminated)
            STATE.termination.install()
        for name in registry.BACKENDS:
            try:
                self._stalls.begin(registry.backend(name), self._epoch)
            except MissingError as error:
                self._absent[name] = error

    def _wait(self) -> None:
        self._stalls.wait()

    def _collect(self, *, wait: bool) -> Capture:
        samples, problems = self._stalls.collected((), self._kernels, {})
        if samples is None or not len(samples):
            missing = tuple(Problem("absent", f"nothing is sampled: {error}") for error in self._absent.values())
            problems = (*missing, *problems)
        return Capture(
            epoch=self._epoch,
            devices=(),
            modules=(),
            options={name: value for name, value in self._named.items() if value not in (None, (), [])},
            problems=problems,
            host=facts(self._started),
            samples=samples,
        )


def sample(path: str | os.PathLike[str], *, period: int | None = None, kernel: Sequence[str] | None = None) -> Session:
    """Sample every kernel that runs in the session, marked or not.

    Args:
        path: file for the capture, name.kscope.
        period: cycles between two samples of an SM sub-partition; None for the default.
        kernel: names, with * and ?, of the kernels to keep.

    Returns:
        The session, a context manager.

    Raises:
        UsageError: an option has an invalid value, or a path cannot be written.
    """
    options = Options(stalls=True, period=period, kernel=kernel)
    target: Path = capture_path.check(path)
    claim((target,))
    return SampleSession(target, options, Finish.of(None, None), True)
