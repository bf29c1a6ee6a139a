"""`kscope run --core`: the GPU is dumped on request, at the time-out and when a kernel fails, and explained."""

from __future__ import annotations

import os
import tempfile
from glob import escape
from pathlib import Path

from ...core_dumps import request, text
from ...core_dumps.verdict import verdict
from ...errors import KscopeError
from ..common import dumped_modules
from .program import note


class CoreDumps:
    """The core dumps of a program, beside the folder in which it starts: kscope-PID.PID.core. Ends as a context."""

    def __init__(self) -> None:
        self._pipes = tempfile.TemporaryDirectory(prefix="kscope-")
        self._stem = Path.cwd() / f"kscope-{os.getpid()}"
        self._shown = set[Path]()
        self.environment = request.environment(Path(self._pipes.name), self._stem)

    def __enter__(self) -> CoreDumps:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipes.cleanup()

    def take(self, pid: int) -> None:
        """Have the process and those that it started dumped, which ends them, and print where their warps were."""
        try:
            for target in request.targets(pid):
                self._show(request.dump(target))
        except KscopeError as error:
            note(str(error))

    def show(self) -> None:
        """Print what has not been printed yet."""
        for path in sorted(self._stem.parent.glob(f"{escape(self._stem.name)}.*.core")):
            self._show(path)

    def _show(self, path: Path) -> None:
        if path in self._shown:
            return
        self._shown.add(path)
        try:
            for line in text.lines(verdict(path, dumped_modules.describe)):
                note(line)
        except (KscopeError, OSError) as error:
            note(str(error))
        note(f"the dump: kscope watch --core {path}")
