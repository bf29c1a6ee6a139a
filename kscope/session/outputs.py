"""What a session does with what it recorded: passes over the trace, and files.

What lives here: profile()'s then= and export=, checked before anything runs. What does not: passes (passes.py), formats
(export/).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..capture.capture import Capture
from ..errors import UsageError

if TYPE_CHECKING:
    from ..trace import Trace

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Passes = Callable[["Trace"], "Trace"] | Sequence[Callable[["Trace"], "Trace"]]


@dataclass(frozen=True)
class Finish:
    """files: to export to. passes: over the trace, in their order."""

    files: tuple[Path, ...] = ()
    passes: tuple[Callable[[Trace], Trace], ...] = ()

    @staticmethod
    def of(export: Paths | None, then: Passes | None) -> Finish:
        """From what a user types: one or several of each. Raises UsageError or MissingError for a file that cannot be
        written."""
        files = _several(export)
        passes = _several(then)
        if not all(callable(one) for one in passes):
            raise UsageError(f"then={then!r}: expected a function from a trace to a trace, or several")
        if not all(isinstance(one, (str, os.PathLike)) for one in files):
            raise UsageError(f"export={export!r}: expected the path of a file such as 'run.pftrace', or several")
        if files:
            from ..export import check  # read only by those who ask for it

            for file in files:
                check(Path(file).absolute())
        return Finish(tuple(Path(file).absolute() for file in files), passes)

    def trace(self, capture: Capture) -> Trace:
        """The capture, decoded and passed on. Raises what a pass raises, and UsageError where one gives no trace."""
        from ..trace import (
            Trace,
            decode,  # the decoder is not needed to record
        )

        found = decode(capture)
        for one in self.passes:
            found = one(found)
            if not isinstance(found, Trace):
                raise UsageError(f"then={getattr(one, '__name__', one)}: it gave {found!r}, expected the trace")
        return found

    def write(self, trace: Trace) -> None:
        """Write the files."""
        for file in self.files:
            trace.export(file)


def _several(given: Any) -> tuple[Any, ...]:
    """One or several, as several."""
    if given is None:
        return ()
    return tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
