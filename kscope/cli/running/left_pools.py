"""The pool files of a child process: observed while it runs, and printed if they remain when it has ended."""

from __future__ import annotations

import os
from pathlib import Path

from ...capture.capture import load_capture
from ...capture.pools import held_memory, pool_folder
from ...capture.pools.pool_reading import Pool, open_pool
from ...errors import KscopeError
from ...session import capture_path
from ...watching import text
from ...watching.observing import Observer
from ...watching.verdict import verdict
from .program import note


class LeftPools:
    """The pool files of the child, observed while it runs, to know since when nothing has changed.

    Args:
        pid: the child.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[Path, tuple[Pool, Observer]] = {}
        self._held: dict[Path, int] = {}

    def hold(self) -> None:
        """Hold the memory that the child offers, and release memory that it has removed."""
        there = pool_folder.of_process(self._pid)
        for path in there:
            if (file := held_memory.take(path)) is not None:  # new, or removed and made again since the last look
                self._drop(path)
                self._held[path] = file
        for path in [*(self._held.keys() | self._seen.keys()) - {*there}]:
            self._drop(path)

    def _drop(self, path: Path) -> None:
        self._seen.pop(path, None)
        if path in self._held:
            os.close(self._held.pop(path))

    def look(self) -> None:
        """Observe changes."""
        for path in pool_folder.of_process(self._pid):
            try:
                if path not in self._seen:
                    self._seen[path] = open_pool(path), Observer()
                pool, observer = self._seen[path]
                if not pool.is_copy:  # its keeper would copy all of it
                    verdict(pool, observer)
            except (KscopeError, OSError):
                continue

    def lines(self) -> list[str]:
        """The verdict on each remaining file; the file of a session that ended normally does not remain."""
        found = []
        for path in pool_folder.of_process(self._pid):
            try:
                pool, observer = self._seen.get(path) or (open_pool(path), None)
                found += [*text.lines(verdict(pool, observer))]
            except (KscopeError, OSError) as error:
                found.append(str(error))
        return found

    def show(self) -> None:
        """Print the verdict."""
        for line in self.lines():
            note(line)

    def keep(self) -> None:
        """Print where the records are. Memory that this process holds would be lost: save it as a capture here."""
        for path in pool_folder.of_process(self._pid):
            if path not in self._held:
                note(f"what was recorded until then: kscope summary {path}")
                continue
            kept = Path(f"kscope-{path.stem}{capture_path.SUFFIX}")
            try:
                load_capture(path).save(kept)
                note(f"what was recorded until then: kscope summary {kept}")
            except (KscopeError, OSError) as error:
                note(f"what was recorded until then is lost: {kept} cannot be written: {error}")
            path.unlink(missing_ok=True)
