"""A session that samples stalls and records no marks: nothing is compiled, and every kernel is sampled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..capture.capture import Capture
from ..capture.model import Problem
from ..errors import MissingError
from ..instrument import registry
from ..instrument.options import Options
from ..instrument.selection.auto import Lines
from . import capture_path
from .host_info import facts
from .output_locks import claim
from .outputs import Finish
from .session import Session


class SampleSession(Session):
    """See sample()."""

    def __init__(self, path: Path, options: Options, marks: tuple[Lines, ...]) -> None:
        super().__init__(path, options, Finish.of(None, None), True)
        self._marks = marks
        self._named["mark"] = [str(one) for one in marks]

    def _begin(self) -> None:
        self._become_active()
        for name in registry.BACKENDS:
            try:
                self._stalls.begin(registry.backend(name), self._epoch)
            except MissingError as error:
                self._absent[name] = error

    def _wait(self) -> None:
        self._stalls.wait()

    def _collect(self, *, wait: bool) -> Capture:
        samples, problems = self._stalls.collected((), self._kernels, {})
        if samples is not None and self._marks:
            from ..analysis.samples.named_lines import unsampled_ranges, with_named_lines  # loaded on first use

            problems = (
                *problems,
                *(Problem("nothing", f"mark {text}") for text in unsampled_ranges(samples, self._marks)),
            )
            samples = with_named_lines(samples, self._marks)
        if samples is None or not len(samples):
            missing = tuple(Problem("absent", f"nothing is sampled: {error}") for error in self._absent.values())
            problems = (*missing, *problems)
        options = {name: value for name, value in self._named.items() if value not in (None, (), [])}
        host = facts(self._started)
        return Capture(self._epoch, (), (), options=options, problems=problems, host=host, samples=samples)


def sample(
    path: str | os.PathLike[str], *, period: int | None = None, kernel: Sequence[str] | None = None,
    mark: Sequence[str] = (),
) -> Session:  # fmt: skip
    """Sample every kernel that runs in the session, marked or not.

    Args:
        path: file for the capture, name.kscope.
        period: cycles between two samples of an SM sub-partition; None for the default.
        kernel: names, with * and ?, of the kernels to keep.
        mark: lines of source that the capture has as regions, such as "load=attn.py:41-47".

    Returns:
        The session, a context manager.

    Raises:
        UsageError: an option has an invalid value, or a path cannot be written.
    """
    options = Options(stalls=True, period=period, kernel=kernel)
    marks = tuple(Lines.of(text) for text in mark)
    target = capture_path.check(path)
    claim((target,))
    return SampleSession(target, options, marks)
