"""The pool files of a child process: looked at while it runs, and shown if they are left when it has ended."""

from __future__ import annotations

from pathlib import Path

from ..capture import pool_folder
from ..capture.pool_reading import Pool, open_pool
from ..errors import KscopeError
from ..watching import text
from ..watching.observing import Observer
from ..watching.verdict import verdict
from .program import note


class LeftPools:
    """The pool files of the child, looked at while it runs, so that it is known since when nothing changes."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[Path, tuple[Pool, Observer]] = {}

    def look(self) -> None:
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
        """The verdict on each file that is still there: one of a session that ended normally is not."""
        found = []
        for path in pool_folder.of_process(self._pid):
            try:
                pool, observer = self._seen.get(path) or (open_pool(path), None)
                found += [*text.lines(verdict(pool, observer))]
            except (KscopeError, OSError) as error:
                found.append(str(error))
            found.append(f"what was recorded until then: kscope summary {path}")
        return found

    def show(self) -> None:
        """Print the verdict."""
        for line in self.lines():
            note(line)
