"""The end of a session: applies transforms to the trace and exports files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..capture.capture import Capture
from ..errors import UsageError
from .launcher import expanded
from .torch_profiler import TorchProfiler

if TYPE_CHECKING:
    from ..trace import Trace

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Transforms = Callable[["Trace"], "Trace"] | Sequence[Callable[["Trace"], "Trace"]]


@dataclass(frozen=True)
class Finish:
    """The exports and transforms of a session.

    Attributes:
        files: files to export to.
        transforms: functions applied to the trace, in order.
        torch: torch's profiler that records beside the session; None for none.
    """

    files: tuple[Path, ...] = ()
    transforms: tuple[Callable[[Trace], Trace], ...] = ()
    torch: TorchProfiler | None = None

    @staticmethod
    def of(export: Paths | None, then: Transforms | None) -> Finish:
        """Check the user's arguments profile(export=..., then=...).

        Raises:
            UsageError: a file cannot be written, or a transform is not a function.
            MissingError: an export needs a package that is not installed.
        """
        files = _several(export)
        transforms = _several(then)
        if not all(callable(one) for one in transforms):
            raise UsageError(f"then={then!r}: expected a function from a trace to a trace, or several")
        if not all(isinstance(one, (str, os.PathLike)) for one in files):
            raise UsageError(f"export={export!r}: expected the path of a file such as 'run.pftrace', or several")
        if files:
            from ..export import check  # slow to import

            files = tuple(Path(expanded(os.fspath(file))).absolute() for file in files)
            for file in files:
                check(file)
        return Finish(files, transforms)

    def trace(self, capture: Capture) -> Trace:
        """The capture, decoded and transformed.

        Raises:
            UsageError: a transform returned something other than a trace.
            Exception: raised by a transform.
        """
        from ..trace import Trace, decode  # recording alone does not need the decoder

        found = decode(capture)
        for one in self.transforms:
            found = one(found)
            if not isinstance(found, Trace):
                raise UsageError(f"then={getattr(one, '__name__', one)}: returned {found!r}, expected a trace")
        return found

    def write(self, capture: Capture, trace: Callable[[], Trace]) -> None:
        """Export the trace to every file, and merge the capture with torch's trace once that is complete."""
        for file in self.files:
            trace().export(file)
        if self.torch is not None:
            from ..trace import decode

            self.torch.recorded(decode(capture))


def _several(given: Any) -> tuple[Any, ...]:
    """One value or several, as a tuple."""
    if given is None:
        return ()
    return tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
