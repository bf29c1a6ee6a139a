"""What a session with survive= leaves while it runs: a pool file per device, with modules, launches and the program."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from ..capture import pool_folder, pool_reading
from ..capture.heads import finished
from ..capture.pool_file import PoolDevice, PoolFile
from ..instrument.launch_lines import LINES
from ..instrument.recording import Survive

KEPT_DEAD = 4
"""Files of dead processes that a new session leaves, the newest ones."""
FRAMES = 12


class Survival:
    """The pool files of one session.

    Args:
        how: where records go.
        epoch: the session.
        host: facts about the program, ready for JSON.
        options: those of the session, ready for JSON.

    Raises:
        UsageError: there is no private folder for them.
    """

    def __init__(self, how: Survive, epoch: int, host: dict[str, Any], options: dict[str, Any]) -> None:
        self._folder = pool_folder.private_folder()
        pool_folder.remove_ended(keep=KEPT_DEAD)
        self._how = how
        self._epoch, self._host, self._options, self._pid = epoch, host, options, os.getpid()
        self._files: list[PoolFile] = []
        LINES.also = self._launched

    @property
    def paths(self) -> list[Path]:
        """The files."""
        return [file.path for file in self._files]

    def open(self, device: PoolDevice, size: int) -> PoolFile:
        """A new file for a device's pool. Raises UsageError, OSError."""
        is_simulated = device.name == "simulated"  # its memory is the host's
        is_kept = self._how == "keeper" or (self._how == "auto" and device.can_keep)
        kind = "sim" if is_simulated else "gpu"
        path = self._folder / pool_folder.name_of(self._pid, self._epoch, f"{kind}{device.ordinal}")
        path.unlink(missing_ok=True)  # of an earlier process with this number
        file = PoolFile(path, device, self._epoch, size, is_copy=is_kept and not is_simulated)
        file.note("host", {"facts": self._host, "options": self._options})
        self._files.append(file)
        return file

    def _launched(self, kernel: int) -> None:
        """A frontend has launched a kernel."""
        if os.getpid() != self._pid:  # a forked child, which records nothing
            return
        stack, now = LINES.stack(FRAMES), time.time_ns()
        for file in self._files:
            file.launched(kernel, now, stack)

    def has_unfinished(self) -> bool:
        """Whether some warp has not finished."""
        for path in (file.path for file in self._files if not file.is_copy):  # else it fails, if it does not finish
            if not path.exists():  # the driver did not take it
                continue
            pool = pool_reading.open_pool(path)
            if not finished(pool.units[pool_reading.slabs(pool)]).all():
                return True
        return False

    def end(self, *, keep: bool) -> None:
        """The session has ended: nobody needs the files if its capture was complete."""
        LINES.also = None
        for file in self._files:
            if os.getpid() == self._pid:
                file.end(remove=not keep)
